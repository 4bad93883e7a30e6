import { execFile } from 'node:child_process'
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'

const root = join(import.meta.dirname, '../../..')

/**
 * The output and exit status of `npm test`: for the run without names, for that of the long tests (by default, two tests
 * pass), and for each file that runs alone.
 */
type Runs = { all: Run; others?: Run; alone?: Record<string, Run> }
type Run = { output: string; status: number }

const passes = (passed: number): Run => ({ output: `   1.0 s  ok      a\n${passed} passed, 0 failed\n`, status: 0 })
const fails = (passed: number, failed: number, ...names: string[]): Run => ({
  output: `${names.map(name => `   1.0 s  FAILED  ${name}  12.5ms\n`).join('')}${passed} passed, ${failed} failed\n`,
  status: 1,
})

/** Runs `.ci/run` in a checkout whose tests end as specified. */
async function runCi(
  t: Test,
  runs: Runs,
  { startWithin, takesMs = 0 }: { startWithin?: number; takesMs?: number } = {},
): Promise<{ lines: string[]; status: number }> {
  const checkout = t.testdir({
    'package.json': JSON.stringify({ scripts: { test: 'node test.mjs' } }),
    'runs.json': JSON.stringify({ others: passes(2), takesMs, ...runs }),
    'test.mjs': `
      import { readFileSync } from 'node:fs'
      const { all, others, alone, takesMs } = JSON.parse(readFileSync('runs.json', 'utf8'))
      const named = { '': all, 'test/long test/machines test/suites': others, ...alone }
      const names = process.argv.slice(2)
      const { output, status } = named[names.join(' ')]
      const deadline = Number(process.env.KRATER_TEST_DEADLINE ?? Infinity)
      process.stdout.write(\`\${names.length} names, until \${deadline}\\n\${output}\`)
      if (names.length === 0) await new Promise(resolve => setTimeout(resolve, takesMs))
      process.exitCode = status`,
  })
  cpSync(join(root, '.ci'), join(checkout, '.ci'), { recursive: true })
  writeFileSync(join(checkout, '.npmrc'), 'update-notifier=false\n')
  mkdirSync(join(checkout, 'test/suites'), { recursive: true })
  writeFileSync(join(checkout, 'test/suites/c.test.ts'), '')
  const { KRATER_TEST_DEADLINE: _, ...inherited } = process.env
  const env = { ...inherited, ...(startWithin !== undefined && { KRATER_CI_START_WITHIN: String(startWithin) }) }
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

t.test('long tests start within a time from the start of the run; all others always start', async t => {
  const C = 'test/suites/c.test.ts'
  const started = Date.now() / 1000
  const { lines } = await runCi(
    t,
    { all: fails(7, 1, A), others: fails(6, 1, C), alone: { [A]: passes(1), [C]: passes(1) } },
    { startWithin: 4000, takesMs: 6_000 },
  )
  const runs = lines.flatMap(line => {
    const [, names, deadline] = /^(\d) names, until (\S+)$/.exec(line) ?? []
    return names === undefined ? [] : [{ names: Number(names), deadline: Number(deadline) }]
  })
  t.same(
    runs.map(({ names, deadline }) => [names, Number.isFinite(deadline)]),
    [
      [0, false],
      [1, false],
      [3, true],
      [1, false],
    ],
  )
  const late = (runs[2]?.deadline ?? 0) - started - 4000
  // The run counts whole seconds, and takes a moment to begin. What runs before these tests takes six seconds.
  t.ok(late > -1 && late < 5, `the deadline is ${late} s late`)
})

t.test('what did not start in time is counted, and the run passes', async t => {
  const skip = '   1.0 s  ok      test/suites/c.test.ts # SKIP no time is left\n'
  const { output, status: code } = passes(2)
  const { lines, status } = await runCi(t, { all: passes(7), others: { output: skip + output, status: code } })
  t.equal(lines.at(-2), 'Files that did not run for lack of time: 1')
  t.same([lines.at(-1), status], ['9 passed, 0 failed', 0])
})

t.test('without time for long tests, the run names them and passes', async t => {
  const { lines, status } = await runCi(t, { all: passes(7) }, { startWithin: 0 })
  t.same(lines.slice(-3), [
    'No time is left: test/suites/c.test.ts',
    'Files that did not run for lack of time: 1',
    '7 passed, 0 failed',
  ])
  t.equal(status, 0)
})

t.test('without time to repeat a failed file, the run fails', async t => {
  const { lines, status } = await runCi(t, { all: fails(7, 1, A), alone: { [A]: passes(1) } }, { startWithin: -400 })
  t.ok(lines.includes(`No time is left to repeat ${A}`))
  t.same([lines.at(-1), status], ['7 passed, 1 failed', 1])
})

t.test('long tests without a test among them fail the run', async t => {
  const { lines, status } = await runCi(t, { all: passes(7), others: { output: 'No test ran.\n', status: 1 } })
  t.same([lines.at(-1), status], ['7 passed, 0 failed', 1])
})
