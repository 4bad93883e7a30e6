import { setTimeout as sleep } from 'node:timers/promises'
import type { Handover } from '../../../../amphora-agent/protocol/handover.js'
import type { HelloResult } from '../../../../amphora-agent/protocol/messages.js'
import { amphoraIdentity } from '../../../compute/amphora-identity.js'
import type { ObservedAgent } from '../plan/observation.js'
import type { AgentConnections, AgentTarget } from './connection.js'
import { AgentIncompatible, AgentRefused, AgentUnreachable } from './errors.js'

/** Address and pinned host key of an amphora's agent. */
export function agentTarget(masterKey: Buffer, amphoraId: string, host: string): AgentTarget {
  return { amphoraId, host, hostKey: amphoraIdentity(masterKey, amphoraId).sshHostKeyPublic }
}

/** A login to an emulated machine on a busy host takes seconds: the next probe finds it further on. */
const PROBE_LIMITS = { timeoutMs: 2_000, connectTimeoutMs: 8_000 }
const PROBE_PAUSE_MS = 200
const POLL_PAUSE_MS = 50

/** What the agent reports about itself; `unreachable` if it fails two probes. */
export async function probeAgent(agents: AgentConnections, target: AgentTarget): Promise<ObservedAgent> {
  const first = await observeAgent(agents, target)
  if (first.state !== 'unreachable') return first
  await sleep(PROBE_PAUSE_MS)
  return observeAgent(agents, target)
}

/**
 * Waits for the agent of a machine that has just been started.
 * @param assertHeld throws when the caller should stop waiting
 * @throws AgentUnreachable, AgentIncompatible
 */
export async function awaitAgent(
  agents: AgentConnections,
  target: AgentTarget,
  limitMs: number,
  assertHeld: () => void,
): Promise<HelloResult> {
  const until = performance.now() + limitMs
  for (;;) {
    assertHeld()
    try {
      return await agents.request(target, { verb: 'hello' }, PROBE_LIMITS)
    } catch (error) {
      if (!(error instanceof AgentUnreachable) || performance.now() > until) throw error
    }
    await sleep(POLL_PAUSE_MS)
  }
}

/**
 * Has the agent announce the VIPs to its neighbours. Ignores an agent too old to know the verb: it announced them when
 * it took them over.
 * @throws AgentUnreachable
 */
export async function announceVips(agents: AgentConnections, target: AgentTarget): Promise<void> {
  await agents.request(target, { verb: 'announce' }, { timeoutMs: 10_000 }).catch((error: unknown) => {
    if (!(error instanceof AgentRefused) || error.error.code !== 'malformed') throw error
  })
}

/**
 * Prepares an amphora for moving the VIPs. The one that takes over waits up to ten seconds for the stick tables of the
 * other.
 * @returns true if those stick tables did not arrive
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
 * Waits until an amphora has all VIPs.
 * @returns false on timeout
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
    const addresses = interfaces.flatMap(nic => nic.addresses.map(address => address.split('/')[0]))
    if (vips.every(vip => addresses.includes(vip))) return true
    if (performance.now() > until) return false
    await sleep(POLL_PAUSE_MS)
  }
}

/**
 * Makes an amphora stop accepting connections, then waits for its existing ones to end.
 * @param seconds how long existing connections may last
 * @param limitMs how long to wait here; the amphora continues on its own
 */
export async function drain(
  agents: AgentConnections,
  target: AgentTarget,
  { seconds, limitMs, assertHeld }: { seconds: number; limitMs: number; assertHeld: () => void },
): Promise<void> {
  await agents.request(target, { verb: 'drain', seconds }, { timeoutMs: 10_000 })
  await pollHello(agents, target, { limitMs, assertHeld }, hello => hello.drain?.ended !== false)
}

/**
 * Waits for requests to removed members to end.
 * @param limitMs how long to wait here; the amphora continues on its own
 */
export async function awaitLeaving(
  agents: AgentConnections,
  target: AgentTarget,
  waiting: { limitMs: number; assertHeld: () => void },
): Promise<void> {
  await pollHello(agents, target, waiting, hello => (hello.leavingSeconds ?? 0) === 0)
}

async function pollHello(
  agents: AgentConnections,
  target: AgentTarget,
  { limitMs, assertHeld }: { limitMs: number; assertHeld: () => void },
  isDone: (hello: HelloResult) => boolean,
): Promise<void> {
  const until = performance.now() + limitMs
  while (performance.now() < until) {
    assertHeld()
    if (isDone(await agents.request(target, { verb: 'hello' }, PROBE_LIMITS))) return
    await sleep(POLL_PAUSE_MS)
  }
}

async function observeAgent(agents: AgentConnections, target: AgentTarget): Promise<ObservedAgent> {
  try {
    return describe(await agents.request(target, { verb: 'hello' }, PROBE_LIMITS))
  } catch (error) {
    if (error instanceof AgentUnreachable) return { state: 'unreachable' }
    if (error instanceof AgentIncompatible) return { state: 'incompatible', is: error.agent.is, text: error.message }
    throw error
  }
}

function describe(hello: HelloResult): ObservedAgent {
  const {
    agentVersion,
    bundle,
    haproxyVersion,
    answersMetrics,
    balancesDatagrams,
    appliedGeneration,
    appliedSha256,
    holdsVip,
    limits,
    drain,
    leavingSeconds,
    missing,
    credential,
  } = hello
  const applied = { appliedGeneration, appliedSha256 }
  return {
    state: 'answers',
    agentVersion,
    bundle,
    haproxyVersion,
    answersMetrics,
    balancesDatagrams,
    ...applied,
    holdsVip,
    limits,
    drain,
    leavingSeconds,
    missing,
    credential,
  }
}
