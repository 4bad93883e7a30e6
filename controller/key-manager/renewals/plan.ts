import { chanceOf, type Life, noticeDue, type RenewalWindow, renewalTime } from './schedule.js'

/** What decides about a certificate. Times are milliseconds since 1970. */
export type CertificateState = Life & {
  /** Id of the container. */
  id: string
  renew: boolean
  /** Whether somebody asked for a renewal since the last one. */
  asked: boolean
  window: RenewalWindow | null
  /** When to ask the CA for its renewal information again; null if the CA has none. */
  infoAt: number | null
  /** The earliest time of the next attempt. */
  retryAt: number | null
  /** The same, by the CA's wish. */
  holdUntil: number | null
  noticedDays: number | null
}

export type CertificatePlan = {
  action: 'renew' | 'ask the CA' | 'wait'
  /** The planned renewal; null if there will be none. */
  renewAt: number | null
  /** The level of a notice to give now. */
  notice: number | null
  /** When the certificate must be looked at again, if the action is to wait. */
  dueAt: number | null
}

/** What to do about a certificate now. Pure. */
export function planCertificate(state: CertificateState, now: number): CertificatePlan {
  const { level, next } = noticeDue(state, state.renew, state.noticedDays, now)
  const renewAt = plannedRenewal(state, now)
  const infoAt = state.renew ? state.infoAt : null
  const times = [renewAt, infoAt, next].filter(time => time !== null)
  const dueAt = times.length === 0 ? null : Math.max(now, Math.min(...times))
  const action = infoAt !== null && infoAt <= now ? 'ask the CA' : renewAt !== null && renewAt <= now ? 'renew' : 'wait'
  return { action, renewAt, notice: level, dueAt }
}

function plannedRenewal(state: CertificateState, now: number): number | null {
  if (!state.renew && !state.asked) return null
  const scheduled = state.asked ? now : renewalTime(state, state.window, chanceOf(state.id))
  return Math.max(scheduled, state.retryAt ?? 0, state.holdUntil ?? 0)
}
