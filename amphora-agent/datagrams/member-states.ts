import type { FailedCheck } from '../protocol/checks.js'
import type { DatagramPool } from '../protocol/datagrams.js'

/** What is known about the members of UDP and SCTP pools. */
export type MemberStates = {
  /** Null while it is unknown: no probe has ended yet, or the pool has no monitor. Such a member serves. */
  isUp: (poolId: string, memberId: string) => boolean | null
  /** Why the last probe of a member that is down failed; null if there is none. */
  failedCheck: (poolId: string, memberId: string) => FailedCheck | null
}

/** Probes members. */
export type MemberMonitors = MemberStates & {
  /**
   * Probes the members of these pools from now on, and no others. Probes and states of unchanged members go on.
   * @param downMembers ids of members that are down until a probe shows otherwise, unless their state is known
   */
  watch: (pools: readonly DatagramPool[], downMembers: readonly string[]) => void
  /** Stops probing; the states stay for the next agent. */
  close: () => Promise<void>
}
