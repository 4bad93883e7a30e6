import { setTimeout as sleep } from 'node:timers/promises'
import type { Handover } from '../../../../amphora-agent/protocol/handover.js'
import type { HelloResult } from '../../../../amphora-agent/protocol/messages.js'
import { amphoraIdentity } from '../../../compute/amphora-identity.js'
import type { ObservedAgent } from '../plan/observation.js'
import type { AgentConnections, AgentTarget } from './connection.js'
import { AgentRefused, AgentUnreachable } from './errors.js'

/** Where one amphora's agent is, and the pin that proves it. */
export function agentTarget(masterKey: Buffer, amphoraId: string, host: string): AgentTarget {
  return { amphoraId, host, hostKey: amphoraIdentity(masterKey, amphoraId).sshHostKeyPublic }
}

const PROBE_LIMITS = { timeoutMs: 2_000, connectTimeoutMs: 2_000 }
const PROBE_PAUSE_MS = 200
const POLL_PAUSE_MS = 50

/** What the agent says of itself; `unreachable` when it answered neither of two probes. */
export async function probeAgent(agents: AgentConnections, target: AgentTarget): Promise<ObservedAgent> {
  return answerOf(agents, target).catch(async error => {
    if (!(error instanceof AgentUnreachable)) throw error
    await sleep(PROBE_PAUSE_MS)
    return answerOf(agents, target).catch((second: unknown): ObservedAgent => {
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
 * Has the agent tell the neighbours of its interface where the VIPs are.
 * @throws AgentUnreachable; not for an agent that is too old to know how, since it told them when it took the VIPs
 */
export async function announceVips(agents: AgentConnections, target: AgentTarget): Promise<void> {
  await agents.request(target, { verb: 'announce' }, { timeoutMs: 10_000 }).catch((error: unknown) => {
    if (!(error instanceof AgentRefused) || error.error.code !== 'malformed') throw error
  })
}

/**
 * Sets up an agent's part in moving the VIPs. The one that takes over waits for the stick tables of the other, for ten seconds at most.
 * @returns whether it has to do without them
 * @throws AgentUnreachable, AgentRefused
 */
export async function beginHandover(
  agents: AgentConnections,
  target: AgentTarget,
  handover: Handover,
): Promise<boolean> {
  const { tables } = await agents.request(target, { verb: 'handover', handover }, { timeoutMs: 25_000 })
  return tables === 'missing'
}

/**
 * Waits until an amphora has all of the VIPs.
 * @returns false when it has not within the time
 */
export async function awaitVips(
  agents: AgentConnections,
  target: AgentTarget,
  vips: readonly string[],
  limitMs: number,
): Promise<boolean> {
  const until = performance.now() + limitMs
  for (;;) {
    const { interfaces } = await agents.request(target, { verb: 'status' }, PROBE_LIMITS)
    const held = interfaces.flatMap(({ addresses }) => addresses.map(address => address.split('/')[0]))
    if (vips.every(vip => held.includes(vip))) return true
    if (performance.now() > until) return false
    await sleep(POLL_PAUSE_MS)
  }
}

/**
 * Has an amphora accept nothing any more, and waits a while for its connections to end.
 * @param seconds how long its connections may last
 * @param limitMs how long to wait here; the amphora goes on by itself
 */
export async function drain(
  agents: AgentConnections,
  target: AgentTarget,
  { seconds, limitMs, held }: { seconds: number; limitMs: number; held: () => void },
): Promise<void> {
  await agents.request(target, { verb: 'drain', seconds }, { timeoutMs: 10_000 })
  await askUntil(agents, target, { limitMs, held }, hello => hello.drain?.ended !== false)
}

/** Waits a while for requests to members that left. @param limitMs how long to wait here; the amphora goes on by itself */
export async function awaitLeaving(
  agents: AgentConnections,
  target: AgentTarget,
  waiting: { limitMs: number; held: () => void },
): Promise<void> {
  await askUntil(agents, target, waiting, hello => (hello.leavingSeconds ?? 0) === 0)
}

async function askUntil(
  agents: AgentConnections,
  target: AgentTarget,
  { limitMs, held }: { limitMs: number; held: () => void },
  isOver: (hello: HelloResult) => boolean,
): Promise<void> {
  const until = performance.now() + limitMs
  while (performance.now() < until) {
    held()
    if (isOver(await agents.request(target, { verb: 'hello' }, PROBE_LIMITS))) return
    await sleep(POLL_PAUSE_MS)
  }
}

async function answerOf(agents: AgentConnections, target: AgentTarget): Promise<ObservedAgent> {
  const hello = await agents.request(target, { verb: 'hello' }, PROBE_LIMITS)
  const { haproxyVersion, appliedGeneration, appliedSha256, holdsVip, limits, drain, leavingSeconds } = hello
  return { state: 'answers', haproxyVersion, appliedGeneration, appliedSha256, holdsVip, limits, drain, leavingSeconds }
}
