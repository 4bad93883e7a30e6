import { siteOf } from '../../http/trusted-proxies.js'

export type LockOutOptions = {
  /** Consecutive failures before the first pause. */
  attempts: number
  /** The longest pause, in seconds. The first pause is one second, and each failure doubles it. */
  maxPauseSeconds: number
  /** A monotonic clock in milliseconds. */
  now: () => number
}

/** Records failed logins per account and source, and the users known at each source. */
export type LockOut = {
  /** Seconds until the login may be tried again; 0 if it may be tried now. */
  secondsLeft: (login: Login) => number
  /** The user who has logged in like this before, unless failures locked the login since; else undefined. */
  knownUser: (login: Login) => string | undefined
  /**
   * Whether the login's user is not known at its source and `attempts` logins from its site have failed, each within
   * the longest pause of the one before.
   */
  isSuspect: (login: Login) => boolean
  failed: (login: Login) => void
  succeeded: (login: Login, userId: string) => void
}

/** An account as the client names it, which does not reveal whether it exists, and the client's address. */
export type Login = { account: string; source: string }

type Entry = { failures: number; until: number; userId: string | undefined }

/** Each entry costs its creator a hash, so pushing out the entries of others takes hours. */
const MAX_ENTRIES = 20_000

/**
 * Pauses failing logins, longer each time, for one account from one source: the owner can log in from elsewhere.
 * Kept in memory: a restart clears it.
 */
export function createLockOut({ attempts, maxPauseSeconds, now }: LockOutOptions): LockOut {
  const entries = new Map<string, Entry>()
  // The latest last.
  const failedSites = new Map<string, { failures: number; at: number }>()
  const keyOf = ({ account, source }: Login) => `${source} ${account}`
  const put = (login: Login, entry: Entry) => putLast(entries, keyOf(login), entry)
  const knownUser = (login: Login) => entries.get(keyOf(login))?.userId
  return {
    secondsLeft: login => Math.max(0, ((entries.get(keyOf(login))?.until ?? 0) - now()) / 1000),
    knownUser,
    isSuspect: login => {
      const { failures, at } = failedSites.get(siteOf(login.source)) ?? { failures: 0, at: 0 }
      return failures >= attempts && now() - at < maxPauseSeconds * 1000 && knownUser(login) === undefined
    },
    failed: login => {
      const site = failedSites.get(siteOf(login.source))
      const isRecent = site !== undefined && now() - site.at < maxPauseSeconds * 1000
      putLast(failedSites, siteOf(login.source), { failures: (isRecent ? site.failures : 0) + 1, at: now() })
      const before = entries.get(keyOf(login))
      // The count starts again after a quiet time of the longest pause.
      const isOld = before !== undefined && before.failures > 0 && now() - before.until > maxPauseSeconds * 1000
      const failures = (isOld ? 0 : (before?.failures ?? 0)) + 1
      const isLocked = failures >= attempts
      const pause = isLocked ? Math.min(2 ** Math.min(failures - attempts, 30), maxPauseSeconds) * 1000 : 0
      put(login, { failures, until: now() + pause, userId: isLocked ? undefined : before?.userId })
    },
    succeeded: (login, userId) => put(login, { failures: 0, until: 0, userId }),
  }
}

function putLast<Value>(map: Map<string, Value>, key: string, value: Value): void {
  map.delete(key)
  map.set(key, value)
  const [oldest] = map.keys()
  if (map.size > MAX_ENTRIES && oldest !== undefined) map.delete(oldest)
}
