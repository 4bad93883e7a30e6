import fc from 'fast-check'
import t from 'tap'
import type { Database } from '../../../controller/database/connection.js'
import { createTestDatabase } from '../../support/database/database.js'
import { type Fate, Killed, MEMBER_SUBNETS } from '../../support/worlds/amphora-world.js'
import { addWarmAmphora, createScene, faultsOf, providerOf } from '../../support/worlds/converge-scene.js'

type Event =
  | { kind: 'attempt'; worker: 0 | 1; fates: Fate[] }
  | { kind: 'add-member'; subnet: 0 | 1 | 2 }
  | { kind: 'remove-members'; subnet: 0 | 1 | 2 }
  | { kind: 'stop-machine' }
  | { kind: 'hang-agent' }
  | { kind: 'failover' }
  | { kind: 'delete' }

const fate = fc.oneof(
  { weight: 6, arbitrary: fc.constant<Fate>('well') },
  { weight: 1, arbitrary: fc.constantFrom<Fate>('fails', 'loses-answer', 'kills') },
)
const aSubnet = fc.constantFrom<0 | 1 | 2>(0, 1, 2)
const event: fc.Arbitrary<Event> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('attempt' as const),
      worker: fc.constantFrom<0 | 1>(0, 1),
      fates: fc.array(fate, { maxLength: 25 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('add-member' as const), subnet: aSubnet }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('remove-members' as const), subnet: aSubnet }) },
  { weight: 2, arbitrary: fc.constant<Event>({ kind: 'failover' }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Event>({ kind: 'stop-machine' }, { kind: 'hang-agent' }, { kind: 'delete' }),
  },
)

t.test('every reachable world converges to the desired state, and nothing leaks', async t => {
  const LANES = 4
  const RUNS = Number(process.env.KRATER_TEST_RUNS ?? 15)
  const runLane = async (seed: number) => {
    const testDatabase = await createTestDatabase()
    const db = testDatabase.of('load_balancer')
    try {
      await fc.assert(
        fc.asyncProperty(
          fc.record({
            topology: fc.constantFrom('SINGLE', 'SINGLE', 'ACTIVE_STANDBY'),
            warm: fc.boolean(),
            events: fc.array(event, { minLength: 2, maxLength: 9 }),
          }),
          async story => {
            const faults = await play(db, story)
            if (faults.length > 0) throw new Error(faults.join('\n'))
          },
        ),
        { numRuns: RUNS, seed, endOnFailure: true },
      )
    } finally {
      await testDatabase.drop()
    }
  }
  const seed = Number(process.env.KRATER_TEST_SEED ?? Date.now() % 1_000_000)
  t.comment(`seed ${seed}`)
  await Promise.all(Array.from({ length: LANES }, (_, lane) => runLane(seed + lane)))
  t.pass(`${LANES * RUNS} stories`)
})

async function play(db: Database, story: { topology: string; warm: boolean; events: Event[] }): Promise<string[]> {
  const scene = await createScene(db, { topology: story.topology })
  await db('amphora').whereNull('load_balancer_id').delete()
  const warm = story.warm ? [await addWarmAmphora(db, scene.world)] : []
  const fates: [Fate[], Fate[]] = [[], []]
  const workers = fates.map(own => providerOf(db, scene.world.enter(own)))
  const amphorae = async () => (await scene.amphoraIds())[0] ?? ''
  let deleted = false
  for (const happening of story.events) {
    if (deleted && happening.kind !== 'attempt') continue
    if (happening.kind === 'attempt') {
      fates[happening.worker].splice(0, Number.POSITIVE_INFINITY, ...happening.fates)
      const result = await scene.attempt(workers[happening.worker]!)
      // A killed worker restarts with an empty memory.
      if (result instanceof Killed) {
        fates[happening.worker] = []
        workers[happening.worker] = providerOf(db, scene.world.enter(fates[happening.worker]))
      }
    }
    if (happening.kind === 'add-member') await scene.addMember(MEMBER_SUBNETS[happening.subnet])
    if (happening.kind === 'remove-members') await scene.removeMembers(MEMBER_SUBNETS[happening.subnet])
    if (happening.kind === 'failover') await scene.failOver()
    if (happening.kind === 'stop-machine') scene.world.stopMachine(await amphorae())
    if (happening.kind === 'hang-agent') scene.world.hangAgent(await amphorae())
    if (happening.kind === 'delete') {
      await scene.change('delete')
      deleted = true
    }
  }
  for (const own of fates) own.length = 0
  // First with what the workers remember, then after a silence that makes them observe everything again.
  let result: true | Error = new Error('never attempted')
  for (let attempt = 0; attempt < 6 && result !== true; attempt++) {
    if (!deleted) await scene.change()
    if (attempt >= 2) await scene.letTimePass()
    result = await scene.attempt(workers[attempt % 2]!)
  }
  if (result !== true) return [`does not settle: ${result}`]
  return faultsOf(db, scene, warm)
}
