import { chmodSync, closeSync, copyFileSync, mkdirSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { bundleTests, testDirectories } from './bundle-tests.js'
import { restorePolicy } from './debian-packages.js'
import { prepare } from './prepare.js'
import { Failure, runScript, say } from './progress.js'
import { createRunDirectory, interruption, runInSandbox } from './sandbox.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const record = join(root, 'test.log')
/** They start before the others, so that none of them is left alone at the end. */
const LONG = ['end-to-end/crash', 'end-to-end/failover', 'unit/provider/plan-failover'].map(
  name => `test/${name}.test.ts`,
)
const temporaryIn = directory => join(directory, 'tmp')
const recordIn = directory => join(directory, 'test.log')

await runScript(async () => {
  restorePolicy()
  await prepare({ withTests: true })
  const files = testFiles(process.argv.slice(2))
  const signal = interruption('what the tests have made')
  const directory = createDirectory()
  try {
    const tests = await bundleTests(files, directory)
    const { code, counts, soFar } = await runTests(tests, directory, signal)
    copyFileSync(recordIn(directory), record)
    if (signal.aborted) {
      say(`Interrupted: ${soFar.passed} passed, ${soFar.failed} failed so far; their record: ${record}`)
      return
    }
    if (counts === null) throw new Failure(`The tests ended with status ${code} before they were counted: ${record}`)
    if (counts.passed + counts.failed === 0) throw new Failure('No test ran.')
    const found = await findCanary(directory)
    if (found.length === 0) counts.passed++
    else counts.failed++
    for (const place of found) say(`FAILED  the payload of the tests' secrets stands in clear: ${place}`)
    say(`${counts.passed} passed, ${counts.failed} failed${counts.other}; the whole record: ${record}`)
    process.stdout.write(`${counts.passed} passed, ${counts.failed} failed\n`)
    process.exitCode ??= counts.failed > 0 ? 1 : code
  } finally {
    for (const made of [directory, ...testDirectories(directory)]) rmSync(made, { recursive: true, force: true })
  }
})

/**
 * Everything that this run writes is below it: PostgreSQL (`postgres`), the test programs (`programs`), temporary files of the tests (`tmp`) and the
 * record of every assertion.
 */
function createDirectory() {
  const directory = createRunDirectory()
  mkdirSync(temporaryIn(directory))
  chmodSync(temporaryIn(directory), 0o1777)
  return directory
}

/** Where the payload that the key manager's tests store is found in clear: PostgreSQL's journal and log, and the record of the tests. Its tables went with the sandbox. */
async function findCanary(directory) {
  const { build } = await import('esbuild')
  const outfile = join(directory, 'canary.mjs')
  const entryPoints = [join(root, 'test/support/canary.ts')]
  await build({ entryPoints, outfile, bundle: true, platform: 'node', format: 'esm', logLevel: 'silent' })
  const { CANARY, searchFiles, searchFor } = await import(outfile)
  const search = searchFor([{ name: 'canary', bytes: Buffer.from(CANARY) }])
  return [join(directory, 'postgres'), recordIn(directory)].flatMap(path => searchFiles(path, search))
}

/** Those that are named, or all. @throws Failure naming one that is not there */
function testFiles(named) {
  const all = readdirSync(join(root, 'test'), { recursive: true })
    .map(path => join('test', path))
    .filter(path => path.endsWith('.test.ts'))
    .sort((a, b) => Number(LONG.includes(b)) - Number(LONG.includes(a)) || (a < b ? -1 : 1))
  const wanted = named.map(path => relative(root, resolve(path)))
  const missing = wanted.find(path => !all.includes(path))
  if (missing !== undefined) throw new Failure(`There is no test ${missing}.`)
  return wanted.length > 0 ? wanted : all
}

/**
 * Runs the tests; the record of every assertion goes to a file, and to the terminal one line per file with what failed in it.
 * @returns the exit status; tap's counts, null when the tests did not come to their end; and what has been seen of them until then
 */
async function runTests(tests, directory, signal) {
  const words = tests.flatMap(({ file, program }) => [file, program])
  const log = openSync(recordIn(directory), 'w')
  const { show, soFar } = failureFilter()
  let counts = null
  const follow = line => {
    writeSync(log, `${line}\n`)
    const total = /^# \{ total: (\d+)(.*) \}$/.exec(line)
    if (total) counts = countsOf(total[2])
    else show(line)
  }
  const code = await runInSandbox([process.execPath, join(root, 'scripts/test-suite.js'), ...words], {
    signal,
    onStart: ({ stdout }) => createInterface({ input: stdout }).on('line', follow),
    cwd: root,
    env: { KRATER_TEST_DIRECTORY: directory, TMPDIR: temporaryIn(directory) },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  closeSync(log)
  return { code, counts, soFar }
}

function countsOf(text) {
  const of = name => Number(new RegExp(`\\b${name}: (\\d+)`).exec(text)?.[1] ?? 0)
  const other = ['skip', 'todo'].filter(name => of(name) > 0).map(name => `, ${of(name)} ${name}`)
  return { passed: of('pass'), failed: of('fail'), other: other.join('') }
}

/**
 * Prints the verdict on each file, and below a file that failed every failed assertion: its path of subtest names and what tap says of it.
 * Subtests that failed only because of something inside them are left out.
 * @returns `show` takes the next line of the record; `soFar` counts the assertions in it
 */
function failureFilter() {
  let path = []
  let diagnostic = null
  const soFar = { passed: 0, failed: 0 }
  const show = line => {
    const depth = Math.floor(line.search(/\S|$/) / 4)
    const text = line.slice(depth * 4)
    if (diagnostic !== null && depth >= diagnostic.depth && !/^(not )?ok /.test(text)) {
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
    if (!closesSubtest) soFar[failed ? 'failed' : 'passed']++
    if (depth === 0) say(`${failed ? 'FAILED' : 'ok    '}  ${verdict[2].replace(/ # time=/, '  ')}`)
    if (failed && !closesSubtest) process.stdout.write(`      ${[...path.slice(0, depth), name].join(' > ')}\n`)
    if (failed) diagnostic = { depth, leaf: !closesSubtest }
    path = path.slice(0, depth)
  }
  return { show, soFar }
}
