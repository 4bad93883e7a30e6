import type { ObservedAmphora } from './observation.js'
import type { Step } from './step.js'

/** The agent that this controller brings along; null if there is none. */
export type UpgradeFacts = { agentBundle: string | null }

/**
 * The next upgrade of an agent in place. Agents are upgraded one after another, and the one with the VIP last: if the new
 * agent fails, the traffic is on the other amphora.
 */
export function planUpgrades(ready: readonly ObservedAmphora[], { agentBundle }: UpgradeFacts): Step[][] {
  const marked = ready.filter(({ upgradeTo }) => upgradeTo !== null && upgradeTo === agentBundle)
  const next = marked.find(({ heldVip }) => !heldVip) ?? marked[0]
  return next === undefined ? [] : [[{ kind: 'upgrade-agent', amphoraId: next.id }]]
}

/** Whether an upgrade in place may give an amphora abilities that its agent lacks. */
export const canUpgrade = ({ agent, upgradeFailed }: ObservedAmphora, { agentBundle }: UpgradeFacts): boolean =>
  agentBundle !== null &&
  agent.state === 'answers' &&
  agent.bundle !== undefined &&
  agent.bundle !== agentBundle &&
  upgradeFailed !== agentBundle
