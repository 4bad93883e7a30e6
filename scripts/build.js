import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const dist = join(root, 'dist')
/** npm writes the last one whenever it changes a package. */
const SOURCES = [
  ...['controller', 'amphora-agent', 'templates', 'scripts/build.js', 'package.json'],
  'node_modules/.package-lock.json',
]
/** A command that started just before a build still loads the chunks of the build before. */
const KEEP_CHUNKS_MS = 3_600_000
const RESULTS = ['krater.js', 'agent.js']
/** CommonJS packages inside an ES module bundle need a require of their own. */
const REQUIRE = {
  js: "import { createRequire as requireFrom } from 'node:module'\nconst require = requireFrom(import.meta.url)",
}

/** True when dist/ is at least as new as every source. */
export function isBuilt() {
  const results = RESULTS.map(name => join(dist, name))
  if (!results.every(existsSync)) return false
  const oldest = Math.min(...results.map(path => statSync(path).mtimeMs))
  return SOURCES.every(source => !existsSync(join(root, source)) || newestIn(join(root, source)) <= oldest)
}

function newestIn(path) {
  const { mtimeMs } = statSync(path)
  if (!statSync(path).isDirectory()) return mtimeMs
  const inside = readdirSync(path).filter(name => name !== 'node_modules')
  return Math.max(mtimeMs, ...inside.map(name => newestIn(join(path, name))))
}

/**
 * Bundles the controller (commands are loaded when they are needed) and the agent (one file with everything in it).
 * Built aside and moved into place, the entry points last, so that a service started at any instant finds a whole.
 */
export async function build() {
  const { build: bundle } = await import('esbuild')
  const aside = join(dist, `.building-${process.pid}`)
  mkdirSync(aside, { recursive: true })
  const common = { bundle: true, platform: 'node', target: 'node20', format: 'esm', logLevel: 'silent', outdir: aside }
  try {
    await Promise.all([
      bundle({
        ...common,
        entryPoints: {
          krater: join(root, 'controller/main.ts'),
          'private-cluster': join(root, 'controller/database/private-cluster.ts'),
          'token-process': join(root, 'controller/key-manager/crypto/pkcs11/token-process.ts'),
          'inspector-thread': join(root, 'controller/certificates/inspection/inspector-thread.ts'),
          'demo-web-server': join(root, 'controller/cli/commands/demo/web-server.ts'),
        },
        ...packagesOutside(),
        splitting: true,
        chunkNames: 'chunk-[name]-[hash]',
        loader: { '.hbs': 'text' },
      }),
      bundle({
        ...common,
        entryPoints: { agent: join(root, 'amphora-agent/main.ts') },
        banner: REQUIRE,
      }),
    ])
    // Whatever the umask: amphorae read it, and their root is not the host's.
    chmodSync(join(aside, 'agent.js'), 0o644)
    putInPlace(aside)
  } finally {
    rmSync(aside, { recursive: true, force: true })
  }
}

/**
 * Packages go into the bundle: as hundreds of small files they would take a third of the time that a process needs to start. Outside stay those with
 * parts that are compiled for a machine, and what knex would ask for if it talked to another database.
 */
export function packagesOutside() {
  const drivers = ['better-sqlite3', 'mariadb', 'mysql', 'mysql2', 'oracledb', 'pg-query-stream', 'sqlite3', 'tedious']
  return { external: ['pkcs11js', 'ssh2', 'pg-native', ...drivers], banner: REQUIRE }
}

function putInPlace(aside) {
  const made = readdirSync(aside).sort((a, b) => Number(RESULTS.includes(a)) - Number(RESULTS.includes(b)))
  for (const name of made) renameSync(join(aside, name), join(dist, name))
  for (const name of readdirSync(dist)) {
    const path = join(dist, name)
    const isOld = Date.now() - statSync(path).mtimeMs > KEEP_CHUNKS_MS
    const isUnused = name.startsWith('.building-') || (name.startsWith('chunk-') && !made.includes(name))
    if (isUnused && isOld) rmSync(path, { recursive: true, force: true })
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  if (!(process.argv.includes('--if-needed') && isBuilt())) await build()
}
