import { portOf } from './desired-ports.js'
import { portsFor, type Rendering } from './desired-state.js'
import type { ObservedAmphora } from './observation.js'
import type { Step } from './step.js'

/** How often to ask whether members that left still have something under way. */
const RECHECK_SECONDS = 2

type Leftovers = {
  /** Before the world is observed again. */
  stages: Step[][]
  /** When there is nothing else to do. */
  wait: Step[]
  /** False when it takes another observation to know what to do. */
  settles: boolean
}

/**
 * The steps for ports and interfaces that no member needs any more. What members that left have under way goes by them: they stay as long as
 * the agent says so, and nothing else waits for that.
 * @param ready the amphorae that can be told something
 * @param applies the steps that come before
 */
export function planLeftovers(
  rendering: Rendering,
  ready: readonly ObservedAmphora[],
  applies: readonly Step[],
): Leftovers {
  const applied = new Set(applies.flatMap(step => (step.kind === 'apply' ? [step.amphoraId] : [])))
  const detaches: Step[] = []
  const awaits: Step[] = []
  const waits: number[] = []
  for (const amphora of ready) {
    const { id: amphoraId, agent } = amphora
    const portIds = leftoverPorts(rendering, amphora)
    // An older agent does not tell.
    const leavingSeconds = agent.state === 'answers' ? agent.leavingSeconds : undefined
    if (portIds.length === 0) continue
    if (leavingSeconds !== undefined && applied.has(amphoraId)) awaits.push({ kind: 'await-leaving', amphoraId })
    else if (leavingSeconds !== undefined && leavingSeconds > 0) waits.push(Math.min(leavingSeconds, RECHECK_SECONDS))
    else detaches.push(...portIds.map((portId): Step => ({ kind: 'detach-port', amphoraId, portId })))
  }
  return {
    stages: [detaches, awaits],
    wait: waits.length === 0 ? [] : [{ kind: 'observe-again', seconds: Math.min(...waits) }],
    settles: awaits.length === 0,
  }
}

/** Ids of ports and interfaces that the configuration does not name. */
function leftoverPorts(rendering: Rendering, amphora: ObservedAmphora): string[] {
  const needed = portsFor(rendering, amphora).map(desired => portOf(amphora, desired)?.id)
  const had = new Set([...amphora.ports.map(port => port.id), ...amphora.plugged])
  return [...had].filter(portId => !needed.includes(portId))
}
