import { join } from 'node:path'
import t from 'tap'

type Counts = { passed: number; failed: number; skipped: number; todo: number }
type Report = { write: (piece: string) => void; soFar: Counts; end: () => Counts | null }
type Create = (options: { say: (line: string) => void; print: (text: string) => void }) => Report

const script = join(import.meta.dirname, '../../../scripts/test-report.js')
const { createReport }: { createReport: Create } = await import(script)

/** What the report prints for TAP output that arrives in small pieces. */
function read(tap: string) {
  const lines: string[] = []
  const report = createReport({
    say: line => lines.push(line),
    print: text => lines.push(...text.trimEnd().split('\n')),
  })
  for (let at = 0; at < tap.length; at += 7) report.write(tap.slice(at, at + 7))
  return { soFar: { ...report.soFar }, counts: report.end(), lines }
}

const PASSES = `TAP version 14
# Subtest: test/unit/a.test.ts
    # Subtest: inner
        ok 1 - good
        ok 2 - inner
        1..2
    ok 1 - inner # time=3.5ms
${'    '}
    1..1
ok 1 - test/unit/a.test.ts # time=57.286ms
`

const FAILS = `# Subtest: test/unit/b.test.ts
    # Subtest: inner
        ok 1 - good
        not ok 2 - 1 # 2
          ---
          diff: |
            -1
            +2
          ...
        ok 3 - later # SKIP no reason
        not ok 4 - some day # TODO
          ---
          found: 1
          ...
        1..4
        # failed 1 of 4 tests
    not ok 1 - inner # time=3.5ms
      ---
      at:
        lineNumber: 3
      ...
${'    '}
    1..1
    # failed 1 test
not ok 2 - test/unit/b.test.ts # time=100ms
  ---
  exitCode: 1
  ...

`

t.test('a passing file is one line', async t => {
  const { lines, counts } = read(`${PASSES}1..1\n# { total: 2, pass: 2 }\n# time=60ms\n`)
  t.same(lines, ['ok      test/unit/a.test.ts  57.286ms'])
  t.same(counts, { passed: 2, failed: 0, skipped: 0, todo: 0 })
})

t.test('a failing file shows each failed assertion, without the enclosing subtests', async t => {
  const { lines, counts } = read(`${PASSES}${FAILS}1..2\n# { total: 6, pass: 3, fail: 1, skip: 1, todo: 1 }\n`)
  t.same(lines, [
    'ok      test/unit/a.test.ts  57.286ms',
    '      test/unit/b.test.ts > inner > 1 # 2',
    '          ---',
    '          diff: |',
    '            -1',
    '            +2',
    '          ...',
    'FAILED  test/unit/b.test.ts  100ms',
  ])
  t.same(counts, { passed: 3, failed: 1, skipped: 1, todo: 1 }, 'the counts are tap’s')
})

t.test('a file whose process fails although its assertions pass counts as a failure', async t => {
  const { lines, counts } = read(
    `# Subtest: test/unit/c.test.ts\n    ok 1 - fine\n    1..1\nnot ok 1 - test/unit/c.test.ts # time=7ms\n  ---\n  exitCode: 7\n  ...\n\n1..1\n`,
  )
  t.same(lines, [
    'FAILED  test/unit/c.test.ts  7ms',
    '      test/unit/c.test.ts',
    '          ---',
    '          exitCode: 7',
    '          ...',
  ])
  t.same(counts, { passed: 1, failed: 1, skipped: 0, todo: 0 })
})

t.test('a skipped file shows its reason', async t => {
  const { lines } = read('ok 1 - test/unit/d.test.ts # SKIP not here\n1..1\n')
  t.same(lines, ['ok      test/unit/d.test.ts # SKIP not here'])
})

t.test('a run that ends before tap’s plan has only the counts so far', async t => {
  const { counts, soFar } = read(PASSES)
  t.equal(counts, null)
  t.same(soFar, { passed: 2, failed: 0, skipped: 0, todo: 0 })
})
