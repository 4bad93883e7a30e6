/** When an amphora was heard, as the health managers have recorded it. */
export type Hearing = {
  amphoraId: string
  loadBalancerId: string
  projectId: string
  /** Seconds since its last heartbeat. */
  silentSeconds: number
  /** Seconds since the first heartbeat after its last gap. */
  heardSinceSeconds: number
}

/** In seconds: between two heartbeats, and the silence after which an amphora counts as silent. */
export type Rhythm = { beatInterval: number; staleAfter: number }

/**
 * What a silence says. `unsure`: not long enough, or nobody was heard all the time since. `together`: others fell silent with it, or have
 * only just come back: a network, until shown otherwise. `alone`: everybody else was heard.
 */
export type Silence = 'unsure' | 'together' | 'alone'

type Vote = 'heard' | 'suspect'

/** Heartbeats that may be lost in a row without the amphora counting as gone: datagrams get lost. */
const LOST_BEATS = 2

/** So many other projects are several, however many there are. */
const SEVERAL = 2

/** A longer pause between two heartbeats is a gap. */
export const gapSeconds = ({ beatInterval }: Rhythm): number => (LOST_BEATS + 0.5) * beatInterval

/**
 * Judges the silence of one amphora by the others. Each project has one vote, whatever the number of its amphorae: load balancers that break
 * themselves can neither make others' deaths look like a dead network nor a dead network like deaths.
 * @param hearings of all amphorae that once served
 */
export function silenceOf(silent: Hearing, hearings: readonly Hearing[], rhythm: Rhythm): Silence {
  if (silent.silentSeconds <= Math.max(rhythm.staleAfter, gapSeconds(rhythm) + rhythm.beatInterval)) return 'unsure'
  const votes = new Map<string, Vote>()
  for (const other of hearings) {
    if (other.loadBalancerId === silent.loadBalancerId) continue
    const vote = voteOf(silent, other, rhythm)
    if (vote !== null && votes.get(other.projectId) !== 'suspect') votes.set(other.projectId, vote)
  }
  const suspects = [...votes.values()].filter(vote => vote === 'suspect').length
  // A tenant who makes many of its own look alike harms nobody else.
  const isOwnSuspect = votes.get(silent.projectId) === 'suspect'
  if (isOwnSuspect || suspects >= SEVERAL || (suspects > 0 && suspects * 3 >= votes.size)) return 'together'
  return votes.size > 0 ? 'alone' : 'unsure'
}

/** `heard` without a gap for as long as a gap needs to show; `suspect` for one that fell silent at the same time or has only just come back. */
function voteOf(silent: Hearing, other: Hearing, rhythm: Rhythm): Vote | null {
  const gap = gapSeconds(rhythm)
  if (other.silentSeconds <= gap) return other.heardSinceSeconds > gap ? 'heard' : 'suspect'
  return Math.abs(other.silentSeconds - silent.silentSeconds) <= gap ? 'suspect' : null
}
