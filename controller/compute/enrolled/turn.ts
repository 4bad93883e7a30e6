import { setTimeout as wait } from 'node:timers/promises'
import type { Boot } from '../../../amphora-agent/protocol/boot.js'
import type { HostAgents } from '../host-agents.js'
import type { EnrolledHost } from './hosts.js'

/** A login to an emulated machine on a busy host takes seconds. */
export const ASK_MS = 10_000
const POLL_MS = 200
/** Ending an amphora, wiping its host and starting the agent anew; emulated on a busy host, Node.js alone takes a minute. */
const TURN_MS = 100_000

/**
 * Makes a host become an amphora, or a free host, and waits until it is. Safe to repeat.
 * @param boot with the host's latest turn
 * @throws Error if it does not answer in time, or a later turn has begun
 */
export async function takeTurn(agents: HostAgents, host: EnrolledHost, boot: Boot): Promise<void> {
  const until = performance.now() + TURN_MS
  await agents.become(host, boot, ASK_MS)
  for (;;) {
    const turn = await agents.turn(host, ASK_MS).catch((error: Error) => error)
    if (turn === host.turn) return
    if (typeof turn === 'number' && turn > host.turn) throw new Error(`The host ${host.name} has begun a later turn.`)
    if (performance.now() > until) {
      const cause = typeof turn === 'number' ? undefined : turn
      throw new Error(`The host ${host.name} did not become what it should within ${TURN_MS / 1000} s.`, { cause })
    }
    await wait(POLL_MS)
  }
}
