import type { Envelope } from '../../amphora-agent/protocol/heartbeat.js'

/** An amphora's current boot, the highest sequence number received, and a bitmap of the last 64 numbers received. */
export type ReplayWindow = { bootId: string; highest: number; seen: bigint; sentMs: number }

export type Verdict =
  | { accepted: true; window: ReplayWindow }
  | { accepted: false; reason: 'replayed' | 'too-old' | 'clock' }

/** Numbers up to this far below the highest are accepted once, since datagrams may arrive out of order. */
const WIDTH = 64
/** Allowed difference in milliseconds between a new boot's clock and ours. */
export const CLOCK_TOLERANCE_MS = 90_000

const MASK = (1n << BigInt(WIDTH)) - 1n

/**
 * Decides whether an authentic datagram is fresh. Within the known boot, only sequence
 * numbers count, so a wrong clock does no harm. A new boot must be close to our time and newer than the previous
 * boot; otherwise an old boot could be replayed.
 */
export function judge(window: ReplayWindow | undefined, envelope: Envelope, nowMs: number): Verdict {
  if (window !== undefined && window.bootId === envelope.bootId) return judgeNumber(window, envelope)
  if (Math.abs(nowMs - envelope.sentMs) > CLOCK_TOLERANCE_MS) return { accepted: false, reason: 'clock' }
  // A previous boot further in the future had a clock that has been set back since.
  const isPreviousBootCredible = window !== undefined && window.sentMs <= nowMs + CLOCK_TOLERANCE_MS
  if (isPreviousBootCredible && envelope.sentMs <= window.sentMs) return { accepted: false, reason: 'replayed' }
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
