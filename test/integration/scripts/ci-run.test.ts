import { execFile } from 'node:child_process'
import { cpSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'

const root = join(import.meta.dirname, '../../..')

/**
 * The output and exit status of `npm test`: for the run of all files, for that of those that take minutes (by default,
 * two tests pass), and for each file that runs alone.
 */
type Runs = { all: Run; others?: Run; alone?: Record<string, Run> }
type Run = { output: string; status: number }

const passes = (passed: number): Run => ({ output: `   1.0 s  ok      a\n${passed} passed, 0 failed\n`, status: 0 })
const fails = (passed: number, failed: number, ...names: string[]): Run => ({
  output: `${names.map(name => `   1.0 s  FAILED  ${name}  12.5ms\n`).join('')}${passed} passed, ${failed} failed\n`,
  status: 1,
})

/** Runs `.ci/run` in a checkout whose tests end as specified. */
async function runCi(t: Test, runs: Runs, startWithin?: number): Promise<{ lines: string[]; status: number }> {
  const checkout = t.testdir({
    'package.json': JSON.stringify({ scripts: { test: 'node test.mjs' } }),
    'runs.json': JSON.stringify({ others: passes(2), ...runs }),
    'test.mjs': `
      import { readFileSync } from 'node:fs'
      const { all, others, alone } = JSON.parse(readFileSync('runs.json', 'utf8'))
      const named = { '': all, 'test/long test/machines test/suites': others, ...alone }
      const names = process.argv.slice(2)
      const { output, status } = named[names.join(' ')]
      const seconds = Number(process.env.KRATER_TEST_DEADLINE ?? Infinity) - Date.now() / 1000
      process.stdout.write(\`\${names.length} names, \${Math.round(seconds / 60)} minutes\\n\${output}\`)
      process.exitCode = status`,
  })
  cpSync(join(root, '.ci'), join(checkout, '.ci'), { recursive: true })
  writeFileSync(join(checkout, '.npmrc'), 'update-notifier=false\n')
  const env = { ...process.env, ...(startWithin !== undefined && { KRATER_CI_START_WITHIN: String(startWithin) }) }
  return new Promise(resolve =>
    execFile('bash', ['.ci/run'], { cwd: checkout, timeout: 180_000, env }, (error, stdout) =>
      resolve({ lines: stdout.trimEnd().split('\n'), status: error === null ? 0 : Number(error.code) }),
    ),
  )
}

const A = 'test/unit/a.test.ts'
const B = 'test/end-to-end/b.test.ts'

t.test('a run in which all tests pass succeeds', async t => {
  const { lines, status } = await runCi(t, { all: passes(7) })
  t.same([lines.at(-1), status], ['9 passed, 0 failed', 0])
})

t.test('a file that fails and then passes alone is flaky, and the run passes', async t => {
  const { lines, status } = await runCi(t, { all: fails(7, 2, A), alone: { [A]: passes(3) } })
  t.same([lines.at(-1), status], ['11 passed, 0 failed', 0])
  t.same(
    lines.filter(line => line.startsWith('flaky: ')),
    [`flaky: ${A}`],
  )
})

t.test('leftovers of a flaky file do not fail the run', async t => {
  const { status } = await runCi(t, { all: fails(7, 2, A, 'nothing is left behind'), alone: { [A]: passes(3) } })
  t.equal(status, 0)
})

t.test('a file that fails twice fails the run; the others are still repeated', async t => {
  const { lines, status } = await runCi(t, {
    all: fails(7, 2, A, B),
    alone: { [A]: fails(1, 1, A), [B]: passes(3) },
  })
  t.same([lines.at(-1), status], ['9 passed, 2 failed', 1])
  t.same(
    lines.filter(line => line.startsWith('flaky: ')),
    [`flaky: ${B}`],
  )
})

t.test('a failure without a file fails the run', async t => {
  const { lines, status } = await runCi(t, { all: fails(7, 1, 'nothing is left behind') })
  t.same([lines.at(-1), status], ['9 passed, 1 failed', 1])
})

t.test('a run without tests fails', async t => {
  for (const all of [
    { output: 'No test ran.\n', status: 1 },
    { output: '', status: 0 },
  ]) {
    const { lines, status } = await runCi(t, { all })
    t.same([lines.at(-1), status], ['2 passed, 0 failed', 1])
  }
})

t.test('a failing runner fails the run even when all tests pass', async t => {
  const { lines, status } = await runCi(t, { all: { ...passes(7), status: 3 } })
  t.same([lines.at(-1), status], ['9 passed, 0 failed', 1])
})

t.test('a suite that fails twice fails the run', async t => {
  const C = 'test/suites/c.test.ts'
  const { lines, status } = await runCi(t, { all: passes(7), others: fails(6, 1, C), alone: { [C]: fails(0, 1, C) } })
  t.same([lines.at(-1), status], ['13 passed, 1 failed', 1])
})

t.test(
  'files that take minutes start within 75 minutes; those of the run of all, and repeated ones, always',
  async t => {
    const C = 'test/suites/c.test.ts'
    const { lines } = await runCi(t, {
      all: fails(7, 1, A),
      others: fails(6, 1, C),
      alone: { [A]: passes(1), [C]: passes(1) },
    })
    t.same(
      lines.filter(line => line.endsWith(' minutes')),
      ['0 names, Infinity minutes', '1 names, Infinity minutes', '3 names, 75 minutes', '1 names, Infinity minutes'],
    )
  },
)

t.test('without time for files that take minutes, the run says so and passes', async t => {
  const { lines, status } = await runCi(t, { all: passes(7) }, 0)
  t.match(lines.at(-2), /^No time is left for test\/long test\/machines test\/suites: this took \d+ of 0 seconds\.$/)
  t.same([lines.at(-1), status], ['7 passed, 0 failed', 0])
})

t.test('files that take minutes, without a test among them, fail the run', async t => {
  const { lines, status } = await runCi(t, { all: passes(7), others: { output: 'No test ran.\n', status: 1 } })
  t.same([lines.at(-1), status], ['7 passed, 0 failed', 1])
})
