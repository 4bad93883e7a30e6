import { siteOf } from '../../http/trusted-proxies.js'

export type LockOutOptions = {
  /** Failures in a row before the first pause. */
  attempts: number
  /** The longest pause, in seconds. The first is one second, and each failure doubles it. */
  mostSeconds: number
  /** Milliseconds of a clock that never goes back. */
  now: () => number
}

/** Failed logins of accounts from sources, and which accounts are known to come from where. */
export type LockOut = {
  /** Seconds until a login may be tried again; 0 when it may be now. */
  secondsLeft: (login: Login) => number
  /** The user who has logged in like this before, and whose password was not guessed at since; undefined when there is none. */
  userOf: (login: Login) => string | undefined
  /** Whether as many logins have failed where it comes from, each within the longest pause of the one before, and it is none of a user who is known there. */
  isSuspect: (login: Login) => boolean
  failed: (login: Login) => void
  succeeded: (login: Login, userId: string) => void
}

/** An account as the client names it, so that nothing tells which ones exist; and where the client is. */
export type Login = { account: string; source: string }

type Entry = { failures: number; until: number; userId: string | undefined }

/** Each costs its maker a hash, so it takes hours to push those of others out. */
const MOST_ENTRIES = 20_000

/**
 * Pauses logins that keep failing, longer each time, for one account from one source: its owner elsewhere is not locked out. Kept in memory; a
 * restart forgets.
 */
export function createLockOut({ attempts, mostSeconds, now }: LockOutOptions): LockOut {
  const entries = new Map<string, Entry>()
  // The latest at the end.
  const failedSites = new Map<string, { failures: number; at: number }>()
  const keyOf = ({ account, source }: Login) => `${source} ${account}`
  const put = (login: Login, entry: Entry) => putLast(entries, keyOf(login), entry)
  const userOf = (login: Login) => entries.get(keyOf(login))?.userId
  return {
    secondsLeft: login => Math.max(0, ((entries.get(keyOf(login))?.until ?? 0) - now()) / 1000),
    userOf,
    isSuspect: login => {
      const { failures, at } = failedSites.get(siteOf(login.source)) ?? { failures: 0, at: 0 }
      return failures >= attempts && now() - at < mostSeconds * 1000 && userOf(login) === undefined
    },
    failed: login => {
      const site = failedSites.get(siteOf(login.source))
      const isRecent = site !== undefined && now() - site.at < mostSeconds * 1000
      putLast(failedSites, siteOf(login.source), { failures: (isRecent ? site.failures : 0) + 1, at: now() })
      const before = entries.get(keyOf(login))
      // Whoever leaves off for as long as the longest pause begins anew.
      const isOld = before !== undefined && before.failures > 0 && now() - before.until > mostSeconds * 1000
      const failures = (isOld ? 0 : (before?.failures ?? 0)) + 1
      const isLocked = failures >= attempts
      const pause = isLocked ? Math.min(2 ** Math.min(failures - attempts, 30), mostSeconds) * 1000 : 0
      put(login, { failures, until: now() + pause, userId: isLocked ? undefined : before?.userId })
    },
    succeeded: (login, userId) => put(login, { failures: 0, until: 0, userId }),
  }
}

function putLast<Value>(map: Map<string, Value>, key: string, value: Value): void {
  map.delete(key)
  map.set(key, value)
  const [oldest] = map.keys()
  if (map.size > MOST_ENTRIES && oldest !== undefined) map.delete(oldest)
}
