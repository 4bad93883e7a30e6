import type { HeldCredential } from '../../../../amphora-agent/protocol/key-manager/credential.js'
import type { Bindings } from '../../../bindings/bindings.js'
import { RENEW_SECONDS, scopeOf } from '../../../bindings/lender.js'
import { referencesIn } from '../../../load-balancer/tree/certificate-references.js'
import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import { agentTarget } from '../agent/agent.js'
import type { AgentConnections } from '../agent/connection.js'
import { AgentRefused, AgentUnreachable } from '../agent/errors.js'
import type { Observed, ObservedAmphora } from '../plan/observation.js'

const LEND_LIMIT_MS = 10_000

/**
 * Gives amphorae the credential with which they read what their load balancer refers to, where they lack it or it soon
 * ends. An amphora that gets none goes on with what it has read.
 * @returns the observation with what they now hold
 */
export async function lendCredential(
  { bindings, agents, masterKey }: { bindings: Bindings; agents: AgentConnections; masterKey: Buffer },
  tree: LoadBalancerTree,
  observed: Observed,
): Promise<Observed> {
  const refs = referencesIn(tree).map(({ ref }) => ref)
  if (refs.length === 0) return observed
  const scope = scopeOf(refs)
  const lacking = observed.amphorae.filter(({ agent }) => agent.state === 'answers' && lacks(agent.credential, scope))
  if (lacking.length === 0) return observed
  const credential = await bindings.lend(tree)
  if (credential === null) return observed
  const lent = new Set<string>()
  const give = async ({ id, managementAddress }: ObservedAmphora): Promise<void> => {
    if (managementAddress === null) return
    const target = agentTarget(masterKey, id, managementAddress)
    try {
      await agents.request(target, { verb: 'lend', credential }, { timeoutMs: LEND_LIMIT_MS })
      lent.add(id)
    } catch (error) {
      // What it lacks for that reason, it reports after the next apply.
      if (!(error instanceof AgentUnreachable || error instanceof AgentRefused)) throw error
    }
  }
  await Promise.all(lacking.map(give))
  const held = { scope, seconds: credential.seconds }
  return {
    ...observed,
    amphorae: observed.amphorae.map(one =>
      lent.has(one.id) && one.agent.state === 'answers' ? { ...one, agent: { ...one.agent, credential: held } } : one,
    ),
  }
}

/** Undefined: an older agent, which takes none. */
const lacks = (held: HeldCredential | null | undefined, scope: string): boolean =>
  held !== undefined && (held === null || held.scope !== scope || held.seconds < RENEW_SECONDS)
