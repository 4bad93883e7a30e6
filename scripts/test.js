import { chmodSync, closeSync, copyFileSync, mkdirSync, openSync, readdirSync, rmSync, writeSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bundleTests, testDirectories } from './bundle-tests.js'
import { restorePolicy } from './debian-packages.js'
import { buildMachines } from './machine-images.js'
import { prepare } from './prepare.js'
import { Failure, runScript, say } from './progress.js'
import { createRunDirectory, interruption, runInSandbox } from './sandbox.js'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const record = join(root, 'test.log')
/** The longest tests start first, so that none of them runs alone at the end. */
const LONGEST = [
  ...['long/failover', 'long/crash', 'unit/provider/plan-failover'],
  ...['api-tls', 'octavia-tempest', 'openstacksdk-functional', 'rotations', 'tls-crash'].map(name => `suites/${name}`),
].map(name => `test/${name}.test.ts`)
/** The suites of other projects need packages of their own. */
const isSuite = file => file.startsWith('test/suites/')
const isOfMachines = file => file.startsWith('test/machines/')
/** Long tests run only when they are named. */
const isLong = file => isSuite(file) || isOfMachines(file) || file.startsWith('test/long/')
/** Those that boot the image of an amphora. */
const bootsImage = file => /^test\/(machines|long)\/(.*\/)?virtual-machine\./.test(file)
/** That which boots the boxes of the lab, and the image. */
const bootsBoxes = file => file === 'test/machines/boxes.test.ts'
/** That which starts a libvirtd. */
const startsLibvirt = file => file === 'test/machines/with-libvirt.test.ts'
/** Those that enroll hosts. */
const enrollsHosts = file => /^test\/machines\/(.*\/)?enrolled-host\./.test(file)
const temporaryIn = directory => join(directory, 'tmp')
const recordIn = directory => join(directory, 'test.log')

await runScript(async () => {
  restorePolicy()
  const files = testFiles(process.argv.slice(2))
  const suites = files.some(isSuite)
  const boxes = files.some(bootsBoxes)
  const image = boxes || files.some(bootsImage)
  const hosts = files.some(enrollsHosts)
  await prepare({
    withTests: true,
    withMachine: suites,
    withEmulator: image,
    withLibvirt: files.some(startsLibvirt),
    withImages: image || hosts,
    withSuites: suites,
    withCluster: files.some(isOfMachines),
  })
  const signal = interruption('the files of the tests')
  await buildMachines({ hosts, image, boxes }, signal)
  const directory = createDirectory()
  try {
    const tests = await bundleTests(files, directory)
    const { code, counts, soFar } = await runTests(tests, directory, signal)
    copyFileSync(recordIn(directory), record)
    if (signal.aborted) {
      say(`Interrupted: ${soFar.passed} passed, ${soFar.failed} failed so far; their log: ${record}`)
      return
    }
    if (counts === null) throw new Failure(`The tests exited with status ${code} before they finished: ${record}`)
    if (counts.passed + counts.failed === 0) throw new Failure('No test ran.')
    const found = await findCanary(directory)
    if (found.length === 0) counts.passed++
    else counts.failed++
    for (const place of found) say(`FAILED  the payload of the tests' secrets is there in clear text: ${place}`)
    const { passed, failed, skipped, todo } = counts
    const other = `${skipped > 0 ? `, ${skipped} skip` : ''}${todo > 0 ? `, ${todo} todo` : ''}`
    say(`${passed} passed, ${failed} failed${other}; the full log: ${record}`)
    process.stdout.write(`${passed} passed, ${failed} failed\n`)
    process.exitCode ??= failed > 0 ? 1 : code
  } finally {
    for (const made of [directory, ...testDirectories(directory)]) rmSync(made, { recursive: true, force: true })
  }
})

/**
 * Creates the directory of everything that this run writes: PostgreSQL (`postgres`), the test programs
 * (`programs`), the tests' temporary files (`tmp`) and the log of every assertion.
 */
function createDirectory() {
  const directory = createRunDirectory()
  mkdirSync(temporaryIn(directory))
  chmodSync(temporaryIn(directory), 0o1777)
  return directory
}

/**
 * The places where the payload of the key manager's tests is found in clear text. Searches what is left of
 * PostgreSQL (its WAL and log; the tables no longer exist), and the log of the tests.
 */
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
 * The test files whose paths begin with one of the names (a file, a folder, or the beginning of a name), in the
 * order of the names; without names, all but the long ones.
 * @throws Failure for a name that matches no file
 */
function testFiles(named) {
  const all = readdirSync(join(root, 'test'), { recursive: true })
    .map(path => join('test', path))
    .filter(path => path.endsWith('.test.ts'))
    .sort((a, b) => Number(LONGEST.includes(b)) - Number(LONGEST.includes(a)) || (a < b ? -1 : 1))
  if (named.length === 0) return all.filter(file => !isLong(file))
  const chosen = named.flatMap(name => {
    const path = relative(root, resolve(name))
    const found = all.filter(file => file.startsWith(path))
    if (found.length === 0) throw new Failure(`There is no test ${path}.`)
    return found
  })
  return [...new Set(chosen)]
}

/**
 * Runs the tests. Writes every assertion to a log file, and to the terminal one line per file with its failures.
 * @returns the exit status; the counts, null when the tests did not finish; and the counts so far
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
