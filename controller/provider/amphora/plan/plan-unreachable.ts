import type { MissingMaterial } from '../../../../amphora-agent/protocol/messages.js'
import type { Inspection } from '../../../compute/driver.js'
import { isDatagram } from '../../../load-balancer/objects/protocols.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../provider.js'
import { isDesired as isEnabled } from '../rendering/desired-objects.js'
import type { ObservedAmphora } from './observation.js'

export type UnreachableFacts = {
  /** Silence after which an amphora counts as silent. */
  staleAfterSeconds: number
  /** How long an amphora that sends heartbeats may be unreachable before it is replaced. */
  replaceAfterSeconds: number
  /** Amphorae that fell silent while others were heard; see health-manager/silence.ts. */
  silentAlone: ReadonlySet<string>
}

/** What to do about an amphora whose machine runs but whose agent is unreachable. */
export type Verdict = 'wait' | 'restart' | 'replace'

/**
 * Silence proves nothing about a machine; only a second, independent check does. An amphora that serves is never
 * restarted, nor is one of several that fell silent together when its machine cannot be inspected. If it sends
 * heartbeats, its network works and only the way in is broken, so it is replaced after a while. One that nothing can cut
 * off would keep the VIP and its addresses beside its successor, so it is replaced only if it is seen not to serve.
 * @param amphorae all amphorae of the load balancer: if the other one of a pair holds the VIP, this one does not
 */
export function verdictOn(
  amphora: ObservedAmphora,
  tree: LoadBalancerTree,
  amphorae: readonly ObservedAmphora[],
  facts: UnreachableFacts,
): Verdict {
  if (isHeard(amphora, facts)) {
    return amphora.canBeCutOff && amphora.unreachableSeconds > facts.replaceAfterSeconds ? 'replace' : 'wait'
  }
  if (amphora.silentSeconds <= facts.staleAfterSeconds) return 'wait'
  if (amphora.serves === true) return 'wait'
  if (amphora.appliedSha256 === null) return amphora.silentSeconds > amphora.patienceSeconds ? 'restart' : 'wait'
  if (amphora.serves === false || amphorae.some(other => other !== amphora && hasVip(other))) {
    return isDesired(tree) ? 'restart' : 'wait'
  }
  return amphora.canBeCutOff && facts.silentAlone.has(amphora.id) ? 'restart' : 'wait'
}

/**
 * Whether a machine serves all that its load balancer has. While a change waits, what the machine has may be only a part
 * of that, so a part suffices.
 */
export function servesAll(
  { adminStateUp, generation, appliedGeneration, listeners }: LoadBalancerTree,
  { serves, forwards }: Pick<Inspection, 'serves' | 'forwards'>,
): boolean {
  if (generation > appliedGeneration) return serves || forwards
  const enabled = adminStateUp ? listeners.filter(isEnabled) : []
  const needed = new Set(enabled.map(({ protocol }) => isDatagram(protocol)))
  return needed.size > 0 && (!needed.has(false) || serves) && (!needed.has(true) || forwards)
}

export const isHeard = ({ heardSeconds }: ObservedAmphora, { staleAfterSeconds }: UnreachableFacts): boolean =>
  heardSeconds !== null && heardSeconds <= staleAfterSeconds

/** False if the load balancer has nothing to serve and no change to apply. */
const isDesired = ({ generation, appliedGeneration, listeners }: LoadBalancerTree): boolean =>
  generation > appliedGeneration || listeners.some(({ adminStateUp }) => adminStateUp)

const hasVip = ({ agent, heldVip }: ObservedAmphora): boolean => agent.state === 'answers' && heldVip

/** The amphora to be replaced serves what its successor could not read from the key manager. */
export const incompleteSuccessor = ({ ref, reason }: MissingMaterial): ProvisioningFault =>
  new ProvisioningFault(
    'certificate-unavailable',
    `The replacement of an amphora waits: the key manager does not give out ${ref} (${reason}).`,
  )

/** Tells the load balancer's owner why an amphora gets no configuration. */
export function unreachableFault(amphora: ObservedAmphora, facts: UnreachableFacts): ProvisioningFault {
  return new ProvisioningFault('amphora-unreachable', unreachableReason(amphora, facts))
}

function unreachableReason(amphora: ObservedAmphora, facts: UnreachableFacts): string {
  if (!amphora.canBeCutOff) {
    return isHeard(amphora, facts)
      ? 'An amphora on an enrolled host sends heartbeats but cannot be reached. It is not replaced, because it would keep the VIP; an operator must repair the SSH server of that host.'
      : 'An amphora on an enrolled host cannot be reached. It is not replaced until it is seen not to serve, because it would keep the VIP; an operator can switch that host off.'
  }
  if (isHeard(amphora, facts)) {
    return `An amphora sends heartbeats but cannot be reached. It is replaced if this lasts for ${facts.replaceAfterSeconds} s.`
  }
  return amphora.serves === true
    ? 'An amphora carries traffic but cannot be reached. It is configured as soon as it can be reached again.'
    : 'An amphora cannot be reached. It is not restarted, because it may still carry traffic.'
}

/** @param text which protocol the agent speaks */
export const incompatibleFault = (text: string): ProvisioningFault => new ProvisioningFault('agent-incompatible', text)

/** @param lack what the agent cannot do, as a clause */
export const olderAgentFault = (lack: string): ProvisioningFault =>
  new ProvisioningFault(
    'agent-too-old',
    `The agent of an amphora is too old to ${lack}, and too many amphorae were restarted or replaced recently. The amphora is replaced later.`,
  )

export const restartLimitFault = () =>
  new ProvisioningFault(
    'restart-limit',
    'An amphora cannot be reached, but too many amphorae were restarted or replaced recently. It is repaired later.',
  )
