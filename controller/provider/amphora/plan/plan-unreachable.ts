import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { ProvisioningFault } from '../../provider.js'
import type { ObservedAmphora } from './observation.js'

export type UnreachableFacts = {
  /** Silence after which an amphora counts as silent. */
  staleAfterSeconds: number
  /** How long an amphora that is heard may stay out of reach before another takes its place. */
  replaceAfterSeconds: number
  /** Amphorae that alone fell silent while others were heard; see health-manager/silence.ts. */
  silentAlone: ReadonlySet<string>
}

/** What to do about an amphora whose machine runs and whose agent cannot be reached. */
export type Verdict = 'wait' | 'restart' | 'replace'

/**
 * Silence says nothing about a machine: only a second, independent way does. One that serves is never restarted, and neither is one of
 * several that fell silent together when nobody can look into it. One that is heard is not behind a dead network: its way in is broken, so
 * another takes its place after a while.
 * @param amphorae all of the load balancer: of a pair, the other one that holds the VIP shows that this one does not
 */
export function verdictOn(
  amphora: ObservedAmphora,
  tree: LoadBalancerTree,
  amphorae: readonly ObservedAmphora[],
  facts: UnreachableFacts,
): Verdict {
  if (isHeard(amphora, facts)) return amphora.unreachableSeconds > facts.replaceAfterSeconds ? 'replace' : 'wait'
  if (amphora.silentSeconds <= facts.staleAfterSeconds) return 'wait'
  if (amphora.serves === true) return 'wait'
  if (amphora.appliedSha256 === null) return 'restart'
  if (amphora.serves === false || amphorae.some(other => other !== amphora && hasVip(other))) {
    return isDesired(tree) ? 'restart' : 'wait'
  }
  return facts.silentAlone.has(amphora.id) ? 'restart' : 'wait'
}

export const isHeard = ({ heardSeconds }: ObservedAmphora, { staleAfterSeconds }: UnreachableFacts): boolean =>
  heardSeconds !== null && heardSeconds <= staleAfterSeconds

/** Nobody misses one that has nothing to serve and nothing to take in. */
const isDesired = ({ generation, appliedGeneration, listeners }: LoadBalancerTree): boolean =>
  generation > appliedGeneration || listeners.some(({ adminStateUp }) => adminStateUp)

const hasVip = ({ agent, heldVip }: ObservedAmphora): boolean => agent.state === 'answers' && heldVip

/** Why an amphora gets no configuration, for the load balancer's owner. */
export function outOfReach(amphora: ObservedAmphora, facts: UnreachableFacts): ProvisioningFault {
  return new ProvisioningFault('amphora-unreachable', reasonOf(amphora, facts))
}

function reasonOf(amphora: ObservedAmphora, facts: UnreachableFacts): string {
  if (isHeard(amphora, facts)) {
    return `An amphora is heard but cannot be reached. Another takes its place when that lasts for ${facts.replaceAfterSeconds} s.`
  }
  return amphora.serves === true
    ? 'An amphora serves but can be neither heard nor reached. It is left alone, and gets its configuration once it can be reached.'
    : 'An amphora can be neither heard nor reached. It is left alone until something shows that it does not serve.'
}

export const restartLimit = () =>
  new ProvisioningFault(
    'restart-limit',
    'An amphora cannot be reached, and too many were restarted or replaced in the last minutes to do so with one more now.',
  )
