import { setTimeout as sleep } from 'node:timers/promises'
import type { HelloResult } from '../../../../amphora-agent/protocol/messages.js'
import type { AgentBundle } from './bundle.js'
import { type AgentConnections, AgentRefused, type AgentTarget, AgentUnreachable } from './connection.js'

/** Why an agent was not replaced; the former one serves on. */
export class UpgradeFailed extends Error {
  override name = 'UpgradeFailed'
}

const REQUEST_MS = 60_000
/** Of agents that do not say it in their hello. */
const USUAL_TRIAL_SECONDS = 30
/** Until the agent has ended, and for the former one to start after a trial. */
const RESTART_SECONDS = 15
/** A login to an emulated machine on a busy host takes seconds. */
const PROBE = { timeoutMs: 8_000, connectTimeoutMs: 8_000 }
const POLL_MS = 200

/**
 * Replaces an agent in place, and waits until the new one counts as good: nobody needs it to for what the amphora serves.
 * Safe to repeat, and to begin again after a crash.
 * @param assertHeld throws when the caller should stop waiting
 * @returns what the new agent says
 * @throws UpgradeFailed, and what a request throws if the agent cannot be asked at all
 */
export async function upgradeAgent(
  agents: AgentConnections,
  target: AgentTarget,
  bundle: AgentBundle,
  assertHeld: () => void,
): Promise<HelloResult> {
  const before = await agents.request(target, { verb: 'hello' }, PROBE)
  if (before.bundle === undefined) throw new UpgradeFailed('The agent is too old to be replaced in place.')
  assertHeld()
  const promised = before.bundle === bundle.sha256 ? null : await requestUpgrade(agents, target, bundle)
  const seconds = promised ?? before.trialSeconds ?? USUAL_TRIAL_SECONDS
  const until = performance.now() + (seconds + RESTART_SECONDS) * 1000
  for (;;) {
    assertHeld()
    const hello = await agents.request(target, { verb: 'hello' }, PROBE).catch((error: unknown) => {
      if (!(error instanceof AgentUnreachable)) throw error
      return null
    })
    if (hello?.bundle === bundle.sha256 && hello.onTrial !== true) return hello
    if (hello?.failedUpgrade?.sha256 === bundle.sha256) {
      throw new UpgradeFailed(`The new agent did not answer, and the former one is back. ${hello.failedUpgrade.output}`)
    }
    if (performance.now() > until) {
      throw new UpgradeFailed(
        `The new agent did not answer within ${seconds} s${hello === null ? ', nor did the former one' : ''}.`,
      )
    }
    await sleep(POLL_MS)
  }
}

/** @returns how long the new agent has to answer; null if the answer was lost */
async function requestUpgrade(
  agents: AgentConnections,
  target: AgentTarget,
  { sha256, content }: AgentBundle,
): Promise<number | null> {
  const body = { verb: 'upgrade', sha256, bundle: content.toString('base64') } as const
  try {
    return (await agents.request(target, body, { timeoutMs: REQUEST_MS })).trialSeconds
  } catch (error) {
    if (error instanceof AgentRefused) {
      throw new UpgradeFailed(`${error.error.message} ${error.error.details}`.trim())
    }
    // It may have been carried out: the agent restarts right after its answer.
    if (error instanceof AgentUnreachable && error.reason === 'connection-lost') return null
    throw error
  }
}
