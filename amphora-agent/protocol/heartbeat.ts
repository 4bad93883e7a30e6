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

/** What every datagram says of its sender, before its payload. */
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

/** Liveness, every few seconds, of fixed size. */
export type Beat = Envelope & {
  kind: 'beat'
  /** First 8 bytes of the applied sha256 in hexadecimal, zeros when nothing is applied. */
  configHash: string
  haproxyRunning: boolean
  /** 1-minute load average times 100. */
  load: number
  freeMemoryKib: number
  /** In the order of MISMATCHES; none from an older agent. */
  mismatches: Mismatch[]
}

/** Statuses and counters of objects by their index in the ObjectTable; a fragment carries some of them and stands on its own. */
export type Report = Envelope & {
  kind: 'report'
  configHash: string
  /** 8 random bytes in hexadecimal; changes when the counters began again from zero. */
  epoch: string
  listeners: { index: number; state: ListenerState; counters: Counters }[]
  /** `firstMember` is the index of the first member state carried, for a pool whose members fill several fragments. */
  pools: { index: number; state: PoolState; counters: Counters; firstMember: number; members: MemberState[] }[]
  /** The latest ones. Datagrams may be lost, so each is told several times. */
  repairs: Repair[]
  /** More fragments of the same report follow or precede; each is applied as it comes. */
  fragment: { index: number; count: number }
}
