import type { Boot } from '../../amphora-agent/protocol/boot.js'
import type { Forwarding } from '../../amphora-agent/protocol/forwarding.js'
import type { Answers } from '../network/driver.js'

/** Where the agent of an enrolled host is reached. */
export type HostAccess = { id: string; address: string; port: number; hostKey: Buffer }

/** Requests to the agents of enrolled hosts. Each rejects if there is no answer within the time limit. */
export type HostAgents = {
  become: (host: HostAccess, boot: Boot, timeoutMs: number) => Promise<void>
  /** @returns the host's turn */
  turn: (host: HostAccess, timeoutMs: number) => Promise<number>
  /** Says where the host's forwarder leads. */
  forward: (host: HostAccess, forwarding: Forwarding, timeoutMs: number) => Promise<void>
  /** @returns what an amphora has left, as clauses */
  survey: (host: HostAccess, timeoutMs: number) => Promise<string[]>
}

/**
 * Looks from this host on a subnet who answers there. Null if this host cannot look.
 * @returns what each address does; null if this host is not on the subnet's network, as far as it leads to others
 * @throws if it cannot look there now
 */
export type LookAround = ((subnetId: string, addresses: readonly string[]) => Promise<Answers | null>) | null

/** How enrolled hosts are reached, and what they get. */
export type EnrolledContext = {
  agents: HostAgents
  lookAround: LookAround
  /** Where the controllers are now; those that are not known to be gone come first. */
  forwarding: () => Promise<Forwarding>
  /** 32 bytes; see amphora-identity.ts. */
  masterKey: Buffer
  /** Port of heartbeats. */
  heartbeatPort: number
  beatIntervalSeconds: number
}
