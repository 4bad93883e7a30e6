import { existsSync, readFileSync } from 'node:fs'
import t from 'tap'
import { restAfter } from '../../../controller/http/turns.js'
import { createFairQueue } from '../../../controller/process/fair-queue.js'
import { waitedPercent } from '../../../controller/process/pressure.js'

t.test('CPU pressure is read from the kernel, or is 0 without support', t => {
  t.equal(waitedPercent('some avg10=93.68 avg60=60.97 avg300=73.93 total=3704192298\nfull avg10=0.00'), 93.68)
  t.equal(waitedPercent(''), 0, 'a kernel without pressure accounting')
  const file = '/proc/pressure/cpu'
  if (existsSync(file)) t.match(readFileSync(file, 'utf8'), /^some avg10=\d+\.\d\d /)
  t.end()
})

t.test('a lane with waiters rests after a turn; other lanes do not', async t => {
  const clock = { now: 0 }
  const asked: [turn: number, floods: boolean][] = []
  const queue = createFairQueue({
    ...{ maxRunning: 2, maxRunningPerLane: 1, maxWaiting: 100, maxWaitingPerLane: 100 },
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
  t.same(within, ['many', 'few', 'few'], 'a lane without waiters continues at once')
  ;(await others[0])?.()
  t.ok(performance.now() - ended >= 195, 'the next of the lane enters after its rest')
  ;(await others[1])?.()
  const expected = [
    [30, false],
    [0, false],
  ]
  t.same(asked, expected, 'the length of each turn that had waiters')
})

t.test('a lane floods when it always has waiters and other lanes are active', async t => {
  const clock = { now: 0 }
  const asked: boolean[] = []
  const queue = createFairQueue({
    ...{ maxRunning: 2, maxRunningPerLane: 1, maxWaiting: 100, maxWaitingPerLane: 100 },
    refusal: lane => new Error(lane),
    now: () => clock.now,
    restMilliseconds: (_turn, floods) => {
      asked.push(floods)
      return 0
    },
  })
  let leave = await queue.enter(['many', ''])
  const others = Array.from({ length: 4 }, () => queue.enter(['many', '']))
  const endTurn = async (turn: number, { beside }: { beside: boolean }) => {
    if (beside) (await queue.enter(['few', '']))()
    leave()
    leave = await others[turn]!
  }
  clock.now = 900
  await endTurn(0, { beside: true })
  clock.now = 1100
  await endTurn(1, { beside: true })
  clock.now = 3000
  await endTurn(2, { beside: false })
  await endTurn(3, { beside: true })
  leave()
  t.same(asked, [false, true, false, true], 'no lane floods at first or while alone')
  t.equal(restAfter(30, false), 30)
  t.equal(restAfter(30, true), 120)
  t.equal(restAfter(5000, true), 2000)
})
