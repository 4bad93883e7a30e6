import { spawn } from 'node:child_process'
import { chmodSync, createWriteStream, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { bundleTests } from './bundle-tests.js'
import { restorePolicy } from './debian-packages.js'
import { prepare } from './prepare.js'
import { Failure, runScript, say } from './progress.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const record = join(root, 'test.log')

await runScript(async () => {
  restorePolicy()
  await prepare({ withTests: true })
  const directory = mkdtempSync(join(tmpdir(), 'krater-npm-test-'))
  const programs = join(root, `node_modules/.cache/krater-tests-${process.pid}`)
  // The postgres account has to pass through.
  chmodSync(directory, 0o755)
  const { startCluster } = await import('../dist/private-cluster.js')
  const cluster = await startCluster({
    directory: join(directory, 'postgres'),
    durable: false,
    settings: { max_connections: '400' },
  })
  try {
    const tests = await bundleTests(testFiles(process.argv.slice(2)), programs)
    const { code, counts } = await runTests(tests, { ...process.env, KRATER_TEST_DIRECTORY: directory })
    if (counts === null) throw new Failure(`The tests ended with status ${code} before they were counted: ${record}`)
    if (counts.passed + counts.failed === 0) throw new Failure('No test ran.')
    const found = await findCanary(directory)
    if (found.length === 0) counts.passed++
    else counts.failed++
    for (const place of found) say(`FAILED  the payload of the tests' secrets stands in clear: ${place}`)
    say(`${counts.passed} passed, ${counts.failed} failed${counts.other}; the whole record: ${record}`)
    process.stdout.write(`${counts.passed} passed, ${counts.failed} failed\n`)
    process.exitCode = counts.failed > 0 ? 1 : code
  } finally {
    await cluster.stop()
    for (const made of [directory, programs]) rmSync(made, { recursive: true, force: true })
  }
})

/** Where the payload that the key manager's tests store is found in clear: PostgreSQL's data, journal and log, and the record of the tests. */
async function findCanary(directory) {
  const { build } = await import('esbuild')
  const outfile = join(directory, 'canary.mjs')
  const entryPoints = [join(root, 'test/support/canary.ts')]
  await build({ entryPoints, outfile, bundle: true, platform: 'node', format: 'esm', logLevel: 'silent' })
  const { CANARY, searchFiles, searchFor } = await import(outfile)
  const search = searchFor([{ name: 'canary', bytes: Buffer.from(CANARY) }])
  return [join(directory, 'postgres'), record].flatMap(path => searchFiles(path, search))
}

/** Those that are named, or all. @throws Failure naming one that is not there */
function testFiles(named) {
  const all = readdirSync(join(root, 'test'), { recursive: true })
    .map(path => join('test', path))
    .filter(path => path.endsWith('.test.ts'))
    .sort()
  const wanted = named.map(path => relative(root, resolve(path)))
  const missing = wanted.find(path => !all.includes(path))
  if (missing !== undefined) throw new Failure(`There is no test ${missing}.`)
  return wanted.length > 0 ? wanted : all
}

/** Runs the tests; the record of every assertion goes to a file, and to the terminal one line per file with what failed in it. */
function runTests(tests, env) {
  const words = tests.flatMap(({ file, program }) => [file, program])
  const tap = spawn(process.execPath, [join(root, 'scripts/test-suite.js'), ...words], {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const stop = () => tap.kill('SIGTERM')
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, stop)
  const log = createWriteStream(record)
  let counts = null
  const show = failureFilter()
  createInterface({ input: tap.stdout }).on('line', line => {
    log.write(`${line}\n`)
    const total = /^# \{ total: (\d+)(.*) \}$/.exec(line)
    if (total) counts = countsOf(total[2])
    else show(line)
  })
  return new Promise((resolve, reject) => {
    tap.on('error', reject)
    tap.on('close', code => {
      for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.removeListener(signal, stop)
      log.end(() => resolve({ code: code ?? 1, counts }))
    })
  })
}

function countsOf(text) {
  const of = name => Number(new RegExp(`\\b${name}: (\\d+)`).exec(text)?.[1] ?? 0)
  const other = ['skip', 'todo'].filter(name => of(name) > 0).map(name => `, ${of(name)} ${name}`)
  return { passed: of('pass'), failed: of('fail'), other: other.join('') }
}

/**
 * Prints the verdict on each file, and below a file that failed every failed assertion: its path of subtest names and what tap says of it.
 * Subtests that failed only because of something inside them are left out.
 */
function failureFilter() {
  let path = []
  let diagnostic = null
  return line => {
    const depth = Math.floor(line.search(/\S|$/) / 4)
    const text = line.slice(depth * 4)
    if (diagnostic !== null && depth >= diagnostic.depth && !text.startsWith('ok ')) {
      if (diagnostic.leaf) process.stdout.write(`        ${line.slice(diagnostic.depth * 4)}\n`)
      if (line.trim() === '...') diagnostic = null
      return
    }
    diagnostic = null
    const subtest = /^# Subtest: (.*)$/.exec(text)
    if (subtest) {
      path = [...path.slice(0, depth), subtest[1]]
      return
    }
    const verdict = /^(not ok|ok) \d+ ?-? ?(.*)$/.exec(text)
    if (verdict === null) return
    const failed = verdict[1] === 'not ok' && !/ # (TODO|SKIP)/.test(verdict[2])
    const name = verdict[2].replace(/ # time=.*$/, '')
    const closesSubtest = path.length === depth + 1 && path[depth] === name
    if (depth === 0) say(`${failed ? 'FAILED' : 'ok    '}  ${verdict[2].replace(/ # time=/, '  ')}`)
    if (failed && !closesSubtest) process.stdout.write(`      ${[...path.slice(0, depth), name].join(' > ')}\n`)
    if (failed) diagnostic = { depth, leaf: !closesSubtest }
    path = path.slice(0, depth)
  }
}
