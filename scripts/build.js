import { execFile } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { promisify } from 'node:util'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const dist = join(root, 'dist')
/** npm writes .package-lock.json whenever it changes a package. */
const SOURCES = [
  ...['controller', 'amphora-agent', 'x509', 'templates', 'scripts/build.js', 'package.json'],
  'node_modules/.package-lock.json',
]
/** Keep the previous build that long: a command that started just before this one still loads parts of it. */
const KEEP_MS = 3_600_000
const RESULTS = ['krater.js', 'agent.js']
/** CommonJS packages in an ES module bundle need a `require`. */
const REQUIRE = {
  js: "import { createRequire as requireFrom } from 'node:module'\nconst require = requireFrom(import.meta.url)",
}

const COMMON = { bundle: true, platform: 'node', target: 'node20', format: 'esm', logLevel: 'silent' }

/** True when dist/ is at least as new as every source. */
export function isBuilt() {
  const results = RESULTS.map(name => join(dist, name))
  if (!results.every(existsSync) || !hasCodeCache()) return false
  const oldest = Math.min(...results.map(path => statSync(path).mtimeMs))
  return SOURCES.every(source => !existsSync(join(root, source)) || newestIn(join(root, source)) <= oldest)
}

/** V8 accepts only caches of its own version. */
const hasCodeCache = () => readdirSync(dist).some(name => name.endsWith(`-${process.version}.cache`))

function newestIn(path) {
  const { mtimeMs } = statSync(path)
  if (!statSync(path).isDirectory()) return mtimeMs
  const inside = readdirSync(path).filter(name => name !== 'node_modules')
  return Math.max(mtimeMs, ...inside.map(name => newestIn(join(path, name))))
}

/**
 * Bundles the controller, the programs that it starts (with shared chunks), and the agent (one self-contained file).
 * Builds in a temporary directory and moves the entry points last, so that a service that starts at any moment finds a
 * complete build.
 */
export async function build() {
  const { build: bundle } = await import('esbuild')
  const outdir = join(dist, `.building-${process.pid}`)
  mkdirSync(outdir, { recursive: true })
  try {
    await Promise.all([
      buildController(bundle, outdir),
      bundle({
        ...COMMON,
        outdir,
        entryPoints: {
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
      }),
      bundle({
        ...COMMON,
        outdir,
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
 * Bundles the controller with a cache of what V8 compiles of it: a controller's processes would spend half of their
 * start on compiling. Such a cache needs one script in ASCII; commands are still loaded on demand.
 */
async function buildController(bundle, outdir) {
  const common = {
    ...{ ...COMMON, format: 'cjs', external: packagesOutside().external, loader: { '.hbs': 'text' } },
    // Neither comments nor template literals, which are not all ASCII. The lines are short enough for stack traces.
    ...{ minifyWhitespace: true, lineLimit: 120, legalComments: 'none', supported: { 'template-literal': false } },
    define: { 'import.meta.url': 'bundleUrl' },
    banner: {
      js: `(function (exports, require, module, __filename, __dirname) { 'use strict'
const bundleUrl = require('node:url').pathToFileURL(__filename).href`,
    },
    footer: { js: '})' },
  }
  const main = join(root, 'controller/main.ts')
  const { metafile } = await bundle({ ...common, entryPoints: [main], write: false, metafile: true, outdir })
  const onDemand = Object.values(metafile.inputs).flatMap(({ imports }) =>
    imports.filter(({ kind, external }) => kind === 'dynamic-import' && !external).map(({ path }) => resolve(path)),
  )
  const loads = onDemand.map(path => `import(${JSON.stringify(path)})`)
  const contents = `export { main } from ${JSON.stringify(main)}
export const loadAll = () => Promise.all([${loads}])`
  const { outputFiles } = await bundle({
    ...common,
    stdin: { contents, resolveDir: root, sourcefile: 'program.js' },
    entryNames: 'program-[hash]',
    outdir,
    write: false,
  })
  const [{ path, text }] = outputFiles
  const program = path.replace(/\.js$/, '.cjs')
  const other = /.{0,40}[\u0080-\uffff].{0,40}/.exec(text)
  if (other !== null) throw new Error(`The bundle of the controller must be ASCII: ${other}`)
  writeFileSync(program, text)
  const tools = join(outdir, '.tools')
  await bundle({
    ...COMMON,
    outdir,
    entryPoints: { krater: join(root, 'controller/start.ts') },
    define: { BUNDLE: JSON.stringify(basename(program)) },
  })
  await bundle({ ...COMMON, outdir: tools, entryPoints: [join(root, 'controller/store-code.ts')] })
  await promisify(execFile)(process.execPath, [join(tools, 'store-code.js'), program])
  rmSync(tools, { recursive: true })
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
    const isOld = Date.now() - statSync(path).mtimeMs > KEEP_MS
    const isUnused = name.startsWith('.building-') || (/^(chunk|program)-/.test(name) && !built.includes(name))
    if (isUnused && isOld) rmSync(path, { recursive: true, force: true })
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  if (!(process.argv.includes('--if-needed') && isBuilt())) await build()
}
