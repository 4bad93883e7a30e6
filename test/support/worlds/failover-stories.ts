import fc from 'fast-check'
import { ProvisioningFault } from '../../../controller/provider/provider.js'
import { createTree } from './plan-scene.js'
import { createPlanWorld } from './plan-world.js'

/** Random stories of a load balancer whose workers and amphorae may die at any moment. */

type Event = { kind: 'step' | 'die' | 'failover' | 'change' | 'move-member' | 'kill' | 'hang'; pick: number }

const eventOf = (kinds: [Event['kind'], number][]): fc.Arbitrary<Event> =>
  fc.oneof(...kinds.map(([kind, weight]) => ({ weight, arbitrary: fc.nat(999).map(pick => ({ kind, pick })) })))
const story = (event: fc.Arbitrary<Event>) =>
  fc.record({
    topology: fc.constantFrom('SINGLE' as const, 'ACTIVE_STANDBY' as const),
    events: fc.array(event, { maxLength: 80, size: 'max' }),
  })

/**
 * Plays a story of a load balancer that is in service, and then an undisturbed failover. @returns what was
 * wrong at any moment or at the end
 */
function play({ topology, events }: { topology: 'SINGLE' | 'ACTIVE_STANDBY'; events: readonly Event[] }): string[] {
  const world = createPlanWorld(createTree({ topology }))
  /** Pending effects: steps of a stage run side by side, the effects of one step in order. */
  let stages: (() => void)[][][] = []
  let atRest = false
  const look = () => {
    try {
      const next = world.plan()
      stages = next.stages.map(stage => stage.map(world.effectsOf))
      atRest = next.stages.length === 0 && next.settles
    } catch (error) {
      if (!(error instanceof ProvisioningFault)) throw error
    }
  }
  const step = (pick: number) => {
    stages = stages.map(stage => stage.filter(effects => effects.length > 0)).filter(stage => stage.length > 0)
    const [stage] = stages
    if (stage === undefined) return look()
    stage[pick % stage.length]?.shift()?.()
  }
  const finish = (): string[] => {
    stages = []
    atRest = false
    for (let moment = 0; moment < 400 && !atRest; moment++) {
      step(0)
      const faults = world.faults()
      if (faults.length > 0) return faults
    }
    return atRest ? world.unfinished() : ['it does not settle']
  }
  const made = finish()
  if (made.length > 0) return made
  for (const { kind, pick } of events) {
    if (kind === 'step') step(pick)
    if (kind === 'die') stages = []
    if (kind === 'failover') world.failOver()
    if (kind === 'change') world.change()
    if (kind === 'move-member') world.moveMember(pick)
    if (kind === 'kill' || kind === 'hang') {
      // What was in progress fails with the machine.
      world.harm(kind, pick)
      stages = []
    }
    const faults = world.faults()
    if (faults.length > 0) return faults
  }
  const left = finish()
  if (left.length > 0) return left
  const before = world.ids()
  world.failOver()
  return [...finish(), ...world.ids().flatMap(id => (before.includes(id) ? [`${id} was not replaced`] : []))]
}

/** The stories in which only workers die. */
export const WORKERS_DIE: [Event['kind'], number][] = [
  ['step', 60],
  ['die', 6],
  ['failover', 3],
  ['change', 3],
  ['move-member', 3],
]

/** The stories in which amphorae die or hang too. */
export const AMPHORAE_DIE: [Event['kind'], number][] = [
  ['step', 60],
  ['die', 5],
  ['failover', 3],
  ['change', 2],
  ['move-member', 2],
  ['kill', 2],
  ['hang', 2],
]

/**
 * Plays random stories of these kinds of events.
 * @throws the shortest story found with a fault
 */
export function playStories(kinds: [Event['kind'], number][], numRuns: number): void {
  fc.assert(
    fc.property(story(eventOf(kinds)), told => {
      const faults = play(told)
      if (faults.length > 0) throw new Error(faults.join('\n'))
    }),
    { numRuns },
  )
}
