import { build } from 'esbuild'

/** Drivers that knex would require for other databases. */
const OTHER_DRIVERS = [
  'better-sqlite3',
  'mariadb',
  'mysql',
  'mysql2',
  'oracledb',
  'pg-native',
  'pg-query-stream',
  'sqlite3',
  'tedious',
]

/**
 * Bundles programs of the sources into a directory, as ES modules with all their dependencies: a process that
 * loads its packages file by file takes twice the CPU time to start.
 */
export async function bundle(entryPoints: Record<string, string>, directory: string): Promise<void> {
  await build({
    entryPoints,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'esm',
    outdir: directory,
    outExtension: { '.js': '.mjs' },
    external: ['cpu-features', '*.node', ...OTHER_DRIVERS],
    banner: { js: "import { createRequire } from 'node:module'\nconst require = createRequire(import.meta.url)" },
    logLevel: 'error',
    // A process with --enable-source-maps reads all of the map, and all of the code, when it starts.
    sourcemap: 'linked',
    sourcesContent: false,
    minifyWhitespace: true,
    legalComments: 'none',
  })
}
