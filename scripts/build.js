import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const dist = join(root, 'dist')
/** npm writes .package-lock.json whenever it changes a package. */
const SOURCES = [
  ...['controller', 'amphora-agent', 'x509', 'templates', 'scripts/build.js', 'package.json'],
  'node_modules/.package-lock.json',
]
/** Keep the chunks of the previous build: a command that started just before this build still loads them. */
const KEEP_CHUNKS_MS = 3_600_000
const RESULTS = ['krater.js', 'agent.js']
/** CommonJS packages in an ES module bundle need a `require`. */
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
 * Bundles the controller (with commands in chunks that are loaded on demand) and the agent (one self-contained file).
 * Builds in a temporary directory and moves the entry points last, so that a service that starts at any moment finds a
 * complete build.
 */
export async function build() {
  const { build: bundle } = await import('esbuild')
  const outdir = join(dist, `.building-${process.pid}`)
  mkdirSync(outdir, { recursive: true })
  const common = { bundle: true, platform: 'node', target: 'node20', format: 'esm', logLevel: 'silent', outdir }
  try {
    await Promise.all([
      bundle({
        ...common,
        entryPoints: {
          krater: join(root, 'controller/main.ts'),
          'private-cluster': join(root, 'controller/database/private-cluster.ts'),
          'token-process': join(root, 'controller/key-manager/crypto/pkcs11/token-process.ts'),
          'acme-probe': join(root, 'controller/key-manager/acme-server/probe/probe-process.ts'),
          'certificate-checker': join(root, 'controller/certificates/barbican/checker/check-process.ts'),
          'inspector-thread': join(root, 'controller/inspection/inspector-thread.ts'),
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
    // Amphorae, whose root is not the host's, must be able to read it whatever the umask.
    chmodSync(join(outdir, 'agent.js'), 0o644)
    moveIntoPlace(outdir)
  } finally {
    rmSync(outdir, { recursive: true, force: true })
  }
}

/**
 * Packages that stay outside the bundle: those with native code, and the drivers that knex imports for other databases.
 * All others are bundled: as hundreds of small files, they would take a third of a process's start time.
 */
export function packagesOutside() {
  const drivers = ['better-sqlite3', 'mariadb', 'mysql', 'mysql2', 'oracledb', 'pg-query-stream', 'sqlite3', 'tedious']
  return { external: ['pkcs11js', 'ssh2', 'pg-native', ...drivers], banner: REQUIRE }
}

function moveIntoPlace(outdir) {
  const built = readdirSync(outdir).sort((a, b) => Number(RESULTS.includes(a)) - Number(RESULTS.includes(b)))
  for (const name of built) renameSync(join(outdir, name), join(dist, name))
  for (const name of readdirSync(dist)) {
    const path = join(dist, name)
    const isOld = Date.now() - statSync(path).mtimeMs > KEEP_CHUNKS_MS
    const isUnused = name.startsWith('.building-') || (name.startsWith('chunk-') && !built.includes(name))
    if (isUnused && isOld) rmSync(path, { recursive: true, force: true })
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  if (!(process.argv.includes('--if-needed') && isBuilt())) await build()
}
