import { FloodError } from '../../http/errors.js'
import { siteOf } from '../../http/trusted-proxies.js'
import type { ThreadPriority } from '../../process/compute-thread.js'
import { createFairQueue, type Place } from '../../process/fair-queue.js'
import { computationsAtOnce } from '../../process/thread-pool.js'
import { outsideTurn } from '../../process/turn.js'
import { createLockOut, type Login } from './lock-out.js'
import { hashMebibytes, hashPassword, type Verification, verifyPassword } from './passwords.js'
import { createPrecedence } from './precedence.js'

export type LoginOptions = {
  password_hash_rounds: number
  password_hash_memory: number
  lockout_failure_attempts: number
  lockout_duration: number
}

/** Everything that hashes a password: slow by intention, so it has shares. */
export type Logins = {
  /** Hashes a new password. @param userId who asks for it */
  hash: (password: string, userId: string) => Promise<string>
  /**
   * One attempt to show a secret, in its turn.
   * @param prove looks the account up and verifies; null when the secret is wrong
   * @throws FloodError 429 while this login is locked out, or when its share of the queue is full
   */
  attempt: <Proven extends { userId: string }>(
    login: Login,
    prove: (verify: Verify) => Promise<Proven | null>,
  ) => Promise<Proven | null>
}

export type Verify = (password: string, hash: string | null | undefined) => Promise<Verification>

const MOST_WAITING = 1024
/** With half a second for each the last one waits for a quarter of a minute, which clients still do. */
const MOST_WAITING_PER_LANE = 32

/**
 * Sites that logins come from take turns, and in one site its sources, or the accounts when it is one address. A user who has logged in from there before has
 * turns of its own: a flood from behind the same address does not delay it. On half of the processors they go before everything else: what is long for one login
 * is then not longer for what others do. Where logins have failed, those of unknown users wait apart, and are computed on what others leave of the processors.
 */
export function createLogins(options: LoginOptions, now: () => number = () => performance.now()): Logins {
  const rounds = options.password_hash_rounds
  const inMemory = Math.floor(options.password_hash_memory / hashMebibytes(rounds))
  const othersAtOnce = Math.max(1, Math.min(computationsAtOnce(), inMemory - 1))
  const lockOut = createLockOut({
    attempts: options.lockout_failure_attempts,
    mostSeconds: options.lockout_duration,
    now,
  })
  const queueOf = (maxRunning: number) =>
    createFairQueue({
      maxRunning,
      maxRunningPerLane: Math.max(1, maxRunning - 1),
      maxWaiting: MOST_WAITING,
      maxWaitingPerLane: MOST_WAITING_PER_LANE,
      refusal: lane =>
        new FloodError(429, 'Too many logins are waiting; try again in a few seconds.', `Logins of ${lane}`, 5),
    })
  const [suspects, others] = [queueOf(1), queueOf(othersAtOnce)]
  const precedence = createPrecedence(computationsAtOnce())

  const refuseLocked = (login: Login) => {
    const seconds = Math.ceil(lockOut.secondsLeft(login))
    if (seconds === 0) return
    const message = `Too many logins have failed; try again in ${seconds} s.`
    throw new FloodError(429, message, `Failed logins of source ${login.source}`, seconds)
  }

  const enter = async (login: Login): Promise<{ leave: () => void; priority: ThreadPriority | null }> => {
    if (!lockOut.isSuspect(login)) {
      const turn = await enterOthers(login)
      if (!lockOut.isSuspect(login)) return turn
      turn.leave()
    }
    return { leave: await suspects.enter(placeOf(login)), priority: 'low' }
  }

  const enterOthers = async (login: Login): Promise<{ leave: () => void; priority: ThreadPriority | null }> => {
    const userId = lockOut.userOf(login)
    const place: Place = userId === undefined ? placeOf(login) : [`user ${userId}`, '']
    const stay = precedence.arrive(place[0])
    try {
      const leave = await others.enter(place)
      return {
        leave: () => {
          stay.leave()
          leave()
        },
        priority: stay.goesFirst() ? 'high' : null,
      }
    } catch (error) {
      stay.leave()
      throw error
    }
  }

  return {
    hash: async (password, userId) => {
      return outsideTurn(async () => {
        const leave = await others.enter([`user ${userId}`, ''])
        try {
          return await hashPassword(password, rounds)
        } finally {
          leave()
        }
      })
    },
    attempt: async (login, prove) => {
      refuseLocked(login)
      return outsideTurn(async () => {
        const { leave, priority } = await enter(login)
        try {
          // Others that waited with it may have failed meanwhile.
          refuseLocked(login)
          const proven = await prove((password, hash) => verifyPassword(password, hash, rounds, priority))
          if (proven === null) lockOut.failed(login)
          else lockOut.succeeded(login, proven.userId)
          return proven
        } finally {
          leave()
        }
      })
    },
  }
}

/** Names of accounts cost nothing, so one source must not have a turn for each in a site that it shares with others. */
function placeOf({ source, account }: Login): Place {
  const site = siteOf(source)
  return [`source ${site}`, site === source ? account : source]
}
