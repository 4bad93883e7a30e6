import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { bound } from '../../../amphora-agent/log/bounded-files.js'
import { createLineWriter } from '../../../amphora-agent/log/haproxy-receiver.js'

function aFile(t: Test): string {
  const directory = mkdtempSync(join(tmpdir(), 'krater-log-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  return join(directory, 'haproxy.log')
}

const linesIn = (path: string): string[] => readFileSync(path, 'utf8').split('\n').slice(0, -1)

t.test('log lines are written in batches', async t => {
  const path = aFile(t)
  const writer = createLineWriter(path)
  const lines = Array.from({ length: 500 }, (_, number) => `line ${number}`)
  for (const line of lines) writer.write(line)
  t.notOk(existsSync(path), 'writing a line does not touch the file at once')
  await writer.close()
  t.same(linesIn(path), lines)
})

t.test('lines beyond the buffer are counted as lost', async t => {
  const path = aFile(t)
  const writer = createLineWriter(path, { maxBatchSize: 100 })
  for (let number = 0; number < 50; number++) writer.write('ten bytes.')
  await writer.close()
  const lines = linesIn(path)
  t.equal(lines.length, 10)
  t.match(lines.at(-1), /^\d{4}-\S+ 41 lines were lost$/)
})

t.test('a full file is rotated', async t => {
  const path = aFile(t)
  for (const round of ['first', 'second', 'third']) {
    const writer = createLineWriter(path, { maxSize: 100 })
    for (let number = 0; number < 6; number++) writer.write(`${round} ${number}`)
    await writer.close()
  }
  t.equal(linesIn(path)[0], 'third 0')
  t.equal(linesIn(`${path}.1`)[0], 'second 0')
  t.ok([path, `${path}.1`].every(file => statSync(file).size <= 100))
})

t.test('a file that cannot be rotated stays small', async t => {
  const path = aFile(t)
  mkdirSync(`${path}.1`)
  for (let round = 0; round < 10; round++) {
    const writer = createLineWriter(path, { maxSize: 100 })
    writer.write(`${round}`.repeat(40))
    await writer.close()
    t.ok(statSync(path).size <= 100)
  }
  t.same(
    linesIn(path),
    ['8', '9'].map(round => round.repeat(40)),
    'the latest lines are kept',
  )
})

t.test('a file that its writers keep open is truncated, and copied if possible', async t => {
  const path = aFile(t)
  writeFileSync(path, 'x'.repeat(200))
  bound(path, 100)
  t.same(
    [path, `${path}.1`].map(file => statSync(file).size),
    [0, 200],
  )
  rmSync(`${path}.1`)
  mkdirSync(`${path}.1`)
  writeFileSync(path, 'x'.repeat(200))
  bound(path, 100)
  t.equal(statSync(path).size, 0)
})
