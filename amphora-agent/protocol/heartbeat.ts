import type { FailedCheck } from './checks.js'
import type { Mismatch, Repair } from './repairs.js'

/** The five counters of a listener or pool, absolute since the epoch began. */
export type Counters = {
  bytesIn: number
  bytesOut: number
  activeConnections: number
  totalConnections: number
  requestErrors: number
}

export type ListenerState = 'OPEN' | 'FULL' | 'DOWN'
export type PoolState = 'UP' | 'DOWN'
export type MemberState = 'UP' | 'DOWN' | 'DRAIN' | 'MAINT' | 'NO_CHECK' | 'UNKNOWN'

/** The header of every datagram: what it says about its sender. */
export type Envelope = {
  keyId: number
  amphoraId: string
  /** 8 random bytes in hexadecimal, new at each start of the agent. */
  bootId: string
  /** Raised by one for every datagram of a boot. */
  seq: number
  sentMs: number
  generation: number
  needsApply: boolean
  vrrpMaster: boolean
}

/** A liveness message of fixed size, sent every few seconds. */
export type Beat = Envelope & {
  kind: 'beat'
  /** First 8 bytes of the applied sha256 in hexadecimal; zeros if nothing is applied. */
  configHash: string
  haproxyRunning: boolean
  /** 1-minute load average times 100. */
  load: number
  freeMemoryKib: number
  /** In the order of MISMATCHES; empty from an older agent. */
  mismatches: Mismatch[]
}

/**
 * States and counters of objects by their index in the ObjectTable. A fragment carries some of them and is
 * self-contained.
 */
export type Report = Envelope & {
  kind: 'report'
  configHash: string
  /** 8 random bytes in hexadecimal; changes when the counters restart at zero. */
  epoch: string
  listeners: { index: number; state: ListenerState; counters: Counters }[]
  /** `firstMember` is the index of the first member state in this fragment, for a pool whose members span several. */
  pools: { index: number; state: PoolState; counters: Counters; firstMember: number; members: MemberState[] }[]
  /** Why members are DOWN, by their positions in the pool. Nothing from an older agent. */
  checks: { pool: number; check: FailedCheck; members: number[] }[]
  /** The latest repairs. Datagrams may be lost, so each is sent several times. */
  repairs: Repair[]
  /** This fragment's place in its report; each fragment is applied as it arrives. */
  fragment: { index: number; count: number }
}
