import { type Cidr, parseCidr } from '../../../network/addresses.js'
import type { Port } from '../../../network/driver.js'
import { portOf } from './desired-ports.js'
import { portsFor, type Rendering } from './desired-state.js'
import type { ObservedAmphora } from './observation.js'
import type { Step } from './step.js'

/** When to check again for requests to removed members: sooner when they have less time left. */
const recheckSeconds = (left: number): number => Math.min(left, Math.max(2, Math.round(left / 10)))

type Leftovers = {
  /** To run now, after the applies. */
  stages: Step[][]
  /** To run when nothing else is left to do. */
  wait: Step[]
  /** False if the next step requires another observation. */
  settles: boolean
}

/**
 * Steps that remove interfaces and addresses that no member needs. Requests to removed members may still use them: they
 * stay until the agent reports that such requests have ended, and nothing else waits for that.
 * @param ready the amphorae whose agents can be reached
 * @param applies the steps that come before
 */
export function planLeftovers(
  rendering: Rendering,
  ready: readonly ObservedAmphora[],
  applies: readonly Step[],
): Leftovers {
  const applied = new Set(applies.flatMap(step => (step.kind === 'apply' ? [step.amphoraId] : [])))
  const releases: Step[] = []
  const awaits: Step[] = []
  const waits: number[] = []
  for (const amphora of ready) {
    const { id: amphoraId, agent } = amphora
    const { urgent, others } = leftoversOf(rendering, amphora)
    releases.push(...urgent)
    if (others.length === 0) continue
    // Undefined from an older agent.
    const left = agent.state === 'answers' ? agent.leavingSeconds : undefined
    if (left !== undefined && applied.has(amphoraId)) awaits.push({ kind: 'await-leaving', amphoraId })
    else if (left !== undefined && left > 0) waits.push(recheckSeconds(left))
    else releases.push(...others)
  }
  return {
    stages: [releases, awaits],
    wait: waits.length === 0 ? [] : [{ kind: 'observe-again', seconds: Math.min(...waits) }],
    settles: awaits.length === 0 && !releases.some(({ kind }) => kind === 'shrink-port'),
  }
}

/** `urgent`: an interface whose subnets overlap those of a needed one. */
function leftoversOf(rendering: Rendering, amphora: ObservedAmphora): { urgent: Step[]; others: Step[] } {
  const amphoraId = amphora.id
  const desired = portsFor(rendering, amphora)
  const needed = desired.map(one => portOf(amphora, one)?.id)
  const had = [...new Set([...amphora.ports.map(port => port.id), ...amphora.plugged])]
  const urgent: Step[] = []
  const others: Step[] = []
  for (const portId of had.filter(id => !needed.includes(id))) {
    const detach: Step = { kind: 'detach-port', amphoraId, portId }
    if (overlapsNeeded(rendering, amphora, portId)) urgent.push(detach)
    else others.push(detach)
  }
  for (const one of desired) {
    const port = portOf(amphora, one)
    const subnetIds = port === undefined ? [] : surplusSubnetIds(port, one.request.fixedIps)
    if (port !== undefined && subnetIds.length > 0) {
      others.push({ kind: 'shrink-port', amphoraId, portId: port.id, subnetIds })
    }
  }
  return { urgent, others }
}

/** Ids of subnets on which a port has addresses but needs none. */
function surplusSubnetIds({ fixedIps }: Port, needed: readonly { subnetId: string }[]): string[] {
  const ids = fixedIps.map(({ subnetId }) => subnetId)
  return [...new Set(ids)].filter(id => !needed.some(({ subnetId }) => subnetId === id))
}

function overlapsNeeded(rendering: Rendering, amphora: ObservedAmphora, portId: string): boolean {
  const cidrsOf = (fixedIps: readonly { subnetId: string }[]) =>
    rendering.observed.subnets.flatMap(({ id, cidr }) =>
      fixedIps.some(({ subnetId }) => subnetId === id) ? [parseCidr(cidr)] : [],
    )
  const own = cidrsOf(amphora.ports.find(({ id }) => id === portId)?.fixedIps ?? [])
  const needed = portsFor(rendering, amphora).flatMap(({ request }) => cidrsOf(request.fixedIps))
  return own.some(one => needed.some(other => one !== null && other !== null && overlap(one, other)))
}

const overlap = (one: Cidr, other: Cidr): boolean =>
  one.version === other.version && one.first <= other.last && other.first <= one.last
