import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import { createFairQueue } from '../../controller/process/fair-queue.js'
import { waitedPercent } from '../../controller/process/pressure.js'

t.test('the share of time in which something waits for a processor is read from the kernel', t => {
  t.equal(waitedPercent('some avg10=93.68 avg60=60.97 avg300=73.93 total=3704192298\nfull avg10=0.00'), 93.68)
  t.equal(waitedPercent(''), 0, 'a kernel without such an account')
  const file = '/proc/pressure/cpu'
  if (existsSync(file)) t.match(readFileSync(file, 'utf8'), /^some avg10=\d+\.\d\d /)
  t.end()
})

t.test('a lane in which others wait rests after a turn, and nobody else does', async t => {
  const clock = { now: 0 }
  const asked: [turn: number, isInCompany: boolean][] = []
  const queue = createFairQueue({
    ...{ atOnce: 2, atOncePerLane: 1, mostWaiting: 100, mostWaitingPerLane: 100 },
    refusal: lane => new Error(lane),
    now: () => clock.now,
    restMilliseconds: (...about) => {
      asked.push(about)
      return 200
    },
  })
  const within: string[] = []
  const enter = async (lane: string) => {
    const leave = await queue.enter([lane, ''])
    within.push(lane)
    return leave
  }
  const first = await enter('many')
  const others = [enter('many'), enter('many')]
  clock.now = 30
  const ended = performance.now()
  first()
  const few = await enter('few')
  few()
  ;(await enter('few'))()
  t.same(within, ['many', 'few', 'few'], 'a lane without others goes on at once')
  ;(await others[0])?.()
  t.ok(performance.now() - ended >= 195, 'the other comes in after its rest')
  ;(await others[1])?.()
  const expected = [
    [30, false],
    [0, true],
  ]
  t.same(asked, expected, 'the length of each turn that others waited for, and whether another lane was there')
})
