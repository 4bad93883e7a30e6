import type { Envelope } from '../../amphora-agent/protocol/heartbeat.js'

/** What is remembered of an amphora's datagrams: its present boot, the highest number seen, and which of the 64 below it. */
export type ReplayWindow = { bootId: string; highest: number; seen: bigint; sentMs: number }

export type Verdict =
  | { accepted: true; window: ReplayWindow }
  | { accepted: false; reason: 'replayed' | 'too-old' | 'clock' }

/** Numbers this far below the highest one are still accepted, once, since datagrams overtake each other. */
const WIDTH = 64
/** How far a new boot's clock may be from ours, in milliseconds. A time further ahead was told by a clock that has been set back since. */
export const CLOCK_TOLERANCE_MS = 90_000

const MASK = (1n << BigInt(WIDTH)) - 1n

/**
 * Decides whether an authentic datagram is fresh (data-plane 4.5). A known boot is judged by its numbers alone, so a clock that runs wrong does
 * no harm; a new boot must be near our time and newer than the boot before it, or else an old boot could be played back.
 */
export function judge(window: ReplayWindow | undefined, envelope: Envelope, nowMs: number): Verdict {
  if (window !== undefined && window.bootId === envelope.bootId) return judgeNumber(window, envelope)
  if (Math.abs(nowMs - envelope.sentMs) > CLOCK_TOLERANCE_MS) return { accepted: false, reason: 'clock' }
  const isLastBootBelievable = window !== undefined && window.sentMs <= nowMs + CLOCK_TOLERANCE_MS
  if (isLastBootBelievable && envelope.sentMs <= window.sentMs) return { accepted: false, reason: 'replayed' }
  return {
    accepted: true,
    window: { bootId: envelope.bootId, highest: envelope.seq, seen: 1n, sentMs: envelope.sentMs },
  }
}

function judgeNumber(window: ReplayWindow, { seq, sentMs }: Envelope): Verdict {
  const ahead = seq - window.highest
  if (ahead > 0) {
    const seen = ahead >= WIDTH ? 1n : ((window.seen << BigInt(ahead)) | 1n) & MASK
    return { accepted: true, window: { ...window, highest: seq, seen, sentMs: Math.max(window.sentMs, sentMs) } }
  }
  if (-ahead >= WIDTH) return { accepted: false, reason: 'too-old' }
  const bit = 1n << BigInt(-ahead)
  if ((window.seen & bit) !== 0n) return { accepted: false, reason: 'replayed' }
  return { accepted: true, window: { ...window, seen: window.seen | bit } }
}
