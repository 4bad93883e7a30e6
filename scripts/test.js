import { chmodSync, closeSync, copyFileSync, mkdirSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
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
    const { passed, failed, skipped, todo } = counts
    const other = `${skipped > 0 ? `, ${skipped} skip` : ''}${todo > 0 ? `, ${todo} todo` : ''}`
    say(`${passed} passed, ${failed} failed${other}; the whole record: ${record}`)
    process.stdout.write(`${passed} passed, ${failed} failed\n`)
    process.exitCode ??= failed > 0 ? 1 : code
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

/**
 * Those whose paths begin with one of the names (a file, a folder, or the beginning of a name), in the order of the names; or all.
 * @throws Failure naming one that none begins with
 */
function testFiles(named) {
  const all = readdirSync(join(root, 'test'), { recursive: true })
    .map(path => join('test', path))
    .filter(path => path.endsWith('.test.ts'))
    .sort((a, b) => Number(LONG.includes(b)) - Number(LONG.includes(a)) || (a < b ? -1 : 1))
  if (named.length === 0) return all
  const chosen = named.flatMap(name => {
    const path = relative(root, resolve(name))
    const found = all.filter(file => file.startsWith(path))
    if (found.length === 0) throw new Failure(`There is no test ${path}.`)
    return found
  })
  return [...new Set(chosen)]
}

/**
 * Runs the tests; the record of every assertion goes to a file, and to the terminal one line per file with what failed in it.
 * @returns the exit status; the counts, null when the tests did not come to their end; and what has been seen of them until then
 */
async function runTests(tests, directory, signal) {
  const { createReport } = await import('./test-report.js')
  const words = tests.flatMap(({ file, program }) => [file, program])
  const log = openSync(recordIn(directory), 'w')
  const report = createReport({ say, print: text => process.stdout.write(text) })
  const code = await runInSandbox([process.execPath, join(root, 'scripts/test-suite.js'), ...words], {
    signal,
    onStart: ({ stdout }) =>
      stdout.setEncoding('utf8').on('data', piece => {
        writeSync(log, piece)
        report.write(piece)
      }),
    cwd: root,
    env: { KRATER_TEST_DIRECTORY: directory, TMPDIR: temporaryIn(directory) },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  closeSync(log)
  const soFar = { ...report.soFar }
  return { code, counts: report.end(), soFar }
}
