/** When an amphora was last heard, as recorded by the health managers. */
export type Liveness = {
  amphoraId: string
  loadBalancerId: string
  projectId: string
  /** Seconds since its last heartbeat. */
  silentSeconds: number
  /** Seconds since the first heartbeat after its last gap. */
  heardSinceSeconds: number
}

/** In seconds: the time between heartbeats, and the silence after which an amphora counts as silent. */
export type HeartbeatTiming = { beatInterval: number; staleAfter: number }

/**
 * What an amphora's silence means. `unsure`: too short, or no other amphora was heard throughout. `together`:
 * others fell silent at the same time or have only just returned, so presume a network failure. `alone`: the
 * others were heard.
 */
export type Silence = 'unsure' | 'together' | 'alone'

type Vote = 'heard' | 'suspect'

/** Consecutive heartbeats that may be lost without counting as a gap: UDP loses datagrams. */
const LOST_BEATS = 2

/** This many suspect projects indicate a network failure, whatever the total. */
const MIN_SUSPECT_PROJECTS = 2

/** A longer time between two heartbeats is a gap. */
export const gapSeconds = ({ beatInterval }: HeartbeatTiming): number => (LOST_BEATS + 0.5) * beatInterval

/**
 * Judges the silence of one amphora by the others. Each project has one vote, whatever the number of its
 * amphorae. A tenant who breaks its own load balancers can therefore make neither failed amphorae look like a
 * network failure nor the reverse.
 * @param all all amphorae that have served
 */
export function judgeSilence(silent: Liveness, all: readonly Liveness[], timing: HeartbeatTiming): Silence {
  if (silent.silentSeconds <= Math.max(timing.staleAfter, gapSeconds(timing) + timing.beatInterval)) return 'unsure'
  const votes = new Map<string, Vote>()
  for (const other of all) {
    if (other.loadBalancerId === silent.loadBalancerId) continue
    const vote = voteOf(silent, other, timing)
    if (vote !== null && votes.get(other.projectId) !== 'suspect') votes.set(other.projectId, vote)
  }
  const suspects = [...votes.values()].filter(vote => vote === 'suspect').length
  // A tenant who makes its own amphorae look alike harms only itself.
  const isOwnSuspect = votes.get(silent.projectId) === 'suspect'
  if (isOwnSuspect || suspects >= MIN_SUSPECT_PROJECTS || (suspects > 0 && suspects * 3 >= votes.size))
    return 'together'
  return votes.size > 0 ? 'alone' : 'unsure'
}

/**
 * `heard`: without a gap for longer than a gap lasts. `suspect`: fell silent at the same time or only just
 * returned.
 */
function voteOf(silent: Liveness, other: Liveness, timing: HeartbeatTiming): Vote | null {
  const gap = gapSeconds(timing)
  if (other.silentSeconds <= gap) return other.heardSinceSeconds > gap ? 'heard' : 'suspect'
  return Math.abs(other.silentSeconds - silent.silentSeconds) <= gap ? 'suspect' : null
}
