import { setTimeout as sleep } from 'node:timers/promises'
import type { HelloResult } from '../../../amphora-agent/protocol/messages.js'
import { amphoraIdentity } from '../../compute/amphora-identity.js'
import type { AgentConnections, AgentTarget } from './agent-connection.js'
import { AgentRefused, AgentUnreachable } from './agent-errors.js'
import type { AgentSight } from './observed.js'

/** Where one amphora's agent is, and the pin that proves it. */
export function agentTarget(masterKey: Buffer, amphoraId: string, host: string): AgentTarget {
  return { amphoraId, host, hostKey: amphoraIdentity(masterKey, amphoraId).sshHostKeyPublic }
}

const PROBE_LIMITS = { timeoutMs: 2_000, connectTimeoutMs: 2_000 }
const PROBE_PAUSE_MS = 200
const POLL_PAUSE_MS = 50

/** What the agent says of itself; `unreachable` when it answered neither of two probes. */
export async function probeAgent(agents: AgentConnections, target: AgentTarget): Promise<AgentSight> {
  return answerOf(agents, target).catch(async error => {
    if (!(error instanceof AgentUnreachable)) throw error
    await sleep(PROBE_PAUSE_MS)
    return answerOf(agents, target).catch((second: unknown): AgentSight => {
      if (second instanceof AgentUnreachable) return { state: 'unreachable' }
      throw second
    })
  })
}

/**
 * Waits for a machine that was just started.
 * @param held throws when waiting is no use any longer
 */
export async function awaitAgent(
  agents: AgentConnections,
  target: AgentTarget,
  limitMs: number,
  held: () => void,
): Promise<HelloResult> {
  const until = performance.now() + limitMs
  for (;;) {
    held()
    try {
      return await agents.request(target, { verb: 'hello' }, PROBE_LIMITS)
    } catch (error) {
      if (!(error instanceof AgentUnreachable) || performance.now() > until) throw error
    }
    await sleep(POLL_PAUSE_MS)
  }
}

/**
 * Has the agent tell the neighbours of its card where the VIPs are.
 * @throws AgentUnreachable; not for an agent that is too old to know how, since it told them when it took the VIPs
 */
export async function announceVips(agents: AgentConnections, target: AgentTarget): Promise<void> {
  await agents.request(target, { verb: 'announce' }, { timeoutMs: 10_000 }).catch((error: unknown) => {
    if (!(error instanceof AgentRefused) || error.error.code !== 'malformed') throw error
  })
}

async function answerOf(agents: AgentConnections, target: AgentTarget): Promise<AgentSight> {
  const hello = await agents.request(target, { verb: 'hello' }, PROBE_LIMITS)
  const { haproxyVersion, appliedGeneration, appliedSha256, limits } = hello
  return { state: 'answers', haproxyVersion, appliedGeneration, appliedSha256, limits }
}
