import { join } from 'node:path'
import t from 'tap'

type InTurn = <T>(list: readonly T[], day: number) => T[]
const { inTurn }: { inTurn: InTurn } = await import(join(import.meta.dirname, '../../../scripts/test-turns.js'))

t.test('each day begins further on, and every file is among the first three within as many days', async t => {
  for (const length of [1, 3, 16, 20, 36]) {
    const list = Array.from({ length }, (_, index) => index)
    const first = list.flatMap(day => inTurn(list, day).slice(0, 3))
    t.same(new Set(first), new Set(list), `${length} files`)
    t.same(
      inTurn(list, 20_000).toSorted((a, b) => a - b),
      list,
    )
  }
  t.same(inTurn(['a', 'b', 'c', 'd'], 1), ['d', 'a', 'b', 'c'])
  t.same(inTurn([], 1), [])
})
