import { FloodError } from '../../http/errors.js'
import { siteOf } from '../../http/trusted-proxies.js'
import type { ThreadPriority } from '../../process/compute-thread.js'
import { createFairQueue, type FairQueue, type Place } from '../../process/fair-queue.js'
import { computationsAtOnce } from '../../process/thread-pool.js'
import { outsideTurn } from '../../process/turn.js'
import { createLockOut, type LockOut, type Login } from './lock-out.js'
import { hashMebibytes, hashPassword, type Verification, verifyPassword } from './passwords.js'
import { createPrecedence } from './precedence.js'

export type LoginOptions = {
  password_hash_rounds: number
  password_hash_memory: number
  lockout_failure_attempts: number
  lockout_duration: number
}

/** Password hashing. It is slow on purpose, so callers share it fairly. */
export type Logins = {
  /** Hashes a new password. @param userId the user who requests it */
  hash: (password: string, userId: string) => Promise<string>
  /**
   * One login attempt, in its turn.
   * @param prove looks up the account and verifies the secret; null if the secret is wrong
   * @throws FloodError 429 while this login is locked out, or when its share of the queue is full
   */
  attempt: <Proven extends { userId: string }>(
    login: Login,
    prove: (verify: Verify) => Promise<Proven | null>,
  ) => Promise<Proven | null>
}

export type Verify = (password: string, hash: string | null | undefined) => Promise<Verification>

const MAX_WAITING = 1024
/** At half a second each, the last one waits for a quarter of a minute, which clients accept. */
const MAX_WAITING_PER_LANE = 32

/** Hashes passwords and verifies logins, with a lock-out and in fair turns (see `createTurns`). */
export function createLogins(options: LoginOptions, now: () => number = () => performance.now()): Logins {
  const rounds = options.password_hash_rounds
  const lockOut = createLockOut({
    attempts: options.lockout_failure_attempts,
    maxPauseSeconds: options.lockout_duration,
    now,
  })
  const turns = createTurns(options, lockOut)

  const refuseLocked = (login: Login) => {
    const seconds = Math.ceil(lockOut.secondsLeft(login))
    if (seconds === 0) return
    const message = `Too many logins have failed; try again in ${seconds} s.`
    throw new FloodError(429, message, `Failed logins of source ${login.source}`, seconds)
  }

  return {
    hash: async (password, userId) => {
      return outsideTurn(async () => {
        const leave = await turns.enterUser(userId)
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
        const { leave, priority } = await turns.enter(login)
        try {
          // Other attempts may have failed while this one waited.
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

type Turn = { leave: () => void; priority: ThreadPriority | null }

type Turns = {
  enter: (login: Login) => Promise<Turn>
  /** A turn for a hash that is not part of a login. @returns what ends it */
  enterUser: (userId: string) => Promise<() => void>
}

/**
 * The sites that logins come from take turns; within a site, its sources do, or its accounts if it is one address. A
 * user who has logged in from there before has separate turns, so a flood from the same address does not delay it. Up
 * to half of the processors run logins before everything else, so that other work does not slow them down. After failed
 * logins from a site, its unknown users wait in a separate queue and get what others leave of the processors.
 */
function createTurns({ password_hash_rounds, password_hash_memory }: LoginOptions, lockOut: LockOut): Turns {
  const inMemory = Math.floor(password_hash_memory / hashMebibytes(password_hash_rounds))
  const suspects = createLoginQueue(1)
  const others = createLoginQueue(Math.max(1, Math.min(computationsAtOnce(), inMemory - 1)))
  const precedence = createPrecedence(computationsAtOnce())

  const enterOthers = async (login: Login): Promise<Turn> => {
    const userId = lockOut.knownUser(login)
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
    enter: async login => {
      if (!lockOut.isSuspect(login)) {
        const turn = await enterOthers(login)
        if (!lockOut.isSuspect(login)) return turn
        turn.leave()
      }
      return { leave: await suspects.enter(placeOf(login)), priority: 'low' }
    },
    enterUser: userId => others.enter([`user ${userId}`, '']),
  }
}

const createLoginQueue = (maxRunning: number): FairQueue =>
  createFairQueue({
    maxRunning,
    maxRunningPerLane: Math.max(1, maxRunning - 1),
    maxWaiting: MAX_WAITING,
    maxWaitingPerLane: MAX_WAITING_PER_LANE,
    refusal: lane =>
      new FloodError(429, 'Too many logins are waiting; try again in a few seconds.', `Logins of ${lane}`, 5),
  })

/** Account names cost nothing to invent, so in a shared site a source gets one turn, not one per account. */
function placeOf({ source, account }: Login): Place {
  const site = siteOf(source)
  return [`source ${site}`, site === source ? account : source]
}
