import type { HelloResult } from '../../../../amphora-agent/protocol/messages.js'
import { json } from '../../../database/sql.js'
import type { AgentConnections, AgentTarget } from '../agent/connection.js'
import { AgentIncompatible, AgentRefused, AgentUnreachable } from '../agent/errors.js'
import { UpgradeFailed, upgradeAgent } from '../agent/upgrade.js'
import { agentColumns } from './amphora-rows.js'
import type { MachineParts } from './machine.js'

/** Time limit of upgradeAgent in an emulated machine, and some more. */
export const UPGRADE_SECONDS = 220

export const MAX_FAULT = 2_000

/** Why an agent was not upgraded in place, as its amphora's row keeps it. */
export type UpgradeFault = { bundle: string; text: string; at: string }

/** Column of an amphora's row. */
export const upgradeFaultColumn = (bundle: string, text: string) => ({
  upgrade_fault: json({ bundle, text: text.slice(0, MAX_FAULT), at: new Date().toISOString() } satisfies UpgradeFault),
})

const NO_MARK = { upgrade_to: null, upgrade_asked_at: null }

/**
 * Upgrades an agent in place. A failure harms nobody: the former agent runs on.
 * @returns the columns of the amphora's row that record it, and why it failed
 */
export async function runUpgrade(
  { agents, agentBundle }: { agents: AgentConnections } & Pick<MachineParts, 'agentBundle'>,
  target: AgentTarget,
  assertHeld: () => void,
) {
  if (agentBundle === null) return { columns: NO_MARK, failure: null }
  try {
    const hello = await upgradeAgent(agents, target, agentBundle, assertHeld)
    return { columns: { ...NO_MARK, upgrade_fault: null, ...agentColumns(hello) }, failure: null }
  } catch (error) {
    const isKnown = [UpgradeFailed, AgentUnreachable, AgentRefused, AgentIncompatible].some(
      kind => error instanceof kind,
    )
    if (!(isKnown && error instanceof Error)) throw error
    return { columns: { ...NO_MARK, ...upgradeFaultColumn(agentBundle.sha256, error.message) }, failure: error.message }
  }
}

/**
 * Upgrades the agent of a machine that serves nothing yet: its image may be older than the controller.
 * @param hello what its agent said when it first answered
 * @returns as runUpgrade
 */
export async function renewAgent(
  parts: { agents: AgentConnections } & Pick<MachineParts, 'agentBundle'>,
  target: AgentTarget,
  hello: HelloResult,
  assertHeld: () => void,
) {
  const { agentBundle } = parts
  const isCurrent = agentBundle === null || hello.bundle === undefined || hello.bundle === agentBundle.sha256
  if (isCurrent) return { columns: { ...NO_MARK, ...agentColumns(hello) }, failure: null }
  const { columns, failure } = await runUpgrade(parts, target, assertHeld)
  return { columns: { ...agentColumns(hello), ...columns }, failure }
}
