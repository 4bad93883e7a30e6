import { ApiError } from '../../http/errors.js'
import type { Logger } from '../../log/log.js'
import { createFairQueue, type FairQueue, type Place } from '../../process/fair-queue.js'
import { outsideTurn } from '../../process/turn.js'
import type { Caller, TokenValidator } from '../caller.js'
import { tokenHash } from '../tokens/store.js'
import { askKeystone } from './ask-keystone.js'
import { createClockWatch } from './clock-skew.js'
import { connectToKeystone, MAX_CONNECTIONS } from './connection.js'
import type { ExternalIdentity } from './external-identity.js'
import { IdentityUnavailable } from './identity-unavailable.js'
import { createServiceSession } from './service-session.js'
import { signInAtKeystone } from './sign-in.js'
import { createTokenCache } from './token-cache.js'
import { callerOfToken } from './token-document.js'

export type ExternalValidator = {
  validate: TokenValidator
  /** Signs in immediately, so that wrong settings show at startup. @throws IdentityUnavailable */
  signIn: () => Promise<void>
  close: () => void
}

const NO_PLACE: Place = ['', '']

type Question = { token: string; allowExpired: boolean; place: Place }

/** More tokens than are in use during the life of one. */
const MAX_CACHED = 20_000
/** How long a token that Keystone does not know is rejected without asking again. */
const INVALID_SECONDS = 10
const MAX_WAITING = 512
const MAX_WAITING_PER_LANE = 128
/** Concurrent requests per lane while other lanes are active. */
const MAX_RUNNING_CONTENDED = 4
/** A longer text, or one with other characters, cannot be a token. */
const TOKEN = /^[\x21-\x7e]{1,8192}$/
const REPORT_INTERVAL_MS = 10_000

/**
 * Validates tokens at an external Keystone. A valid token is cached for `tokenCacheSeconds` after the request, or until
 * it expires, so a revocation may go unnoticed that long. The load on Keystone is bounded: invalid tokens are
 * remembered for some seconds, concurrent requests for one token are merged, callers take turns, and those who would
 * wait long get 503. Only hashes of tokens are kept.
 */
export function createExternalValidator(identity: ExternalIdentity, log: Logger): ExternalValidator {
  const connection = connectToKeystone(identity)
  const session = createServiceSession(() => signInAtKeystone(connection, identity.credentials), log)
  const ask = { connection, session, watchClock: createClockWatch(log) }
  const queue = createValidationQueue(identity)
  const valid = createTokenCache<Caller>(MAX_CACHED)
  const invalid = createTokenCache<true>(MAX_CACHED)
  const pending = new Map<string, Promise<Caller | null>>()
  const report = createReport(log)

  const lookUp = async (key: string, { token, allowExpired, place }: Question): Promise<Caller | null> => {
    const leave = await queue.enter(place)
    const asked = performance.now()
    const document = await askKeystone(ask, token, { allowExpired }).finally(leave)
    report.answered()
    if (document === null) {
      invalid.put(key, true, performance.now() + INVALID_SECONDS * 1000)
      return null
    }
    const caller = callerOfToken(document)
    valid.put(key, caller, asked + identity.tokenCacheSeconds * 1000)
    return caller
  }

  const find = async (question: Question): Promise<Caller | null> => {
    const key = `${question.allowExpired}${tokenHash(question.token).toString('base64')}`
    const cached = valid.get(key)
    if (cached !== undefined) return cached
    if (invalid.get(key)) return null
    return outsideTurn(() => pending.get(key) ?? begin(key, question))
  }

  const begin = (key: string, question: Question): Promise<Caller | null> => {
    const lookingUp = lookUp(key, question).finally(() => pending.delete(key))
    pending.set(key, lookingUp)
    return lookingUp
  }

  return {
    validate: async (token, { allowExpired = false, place = NO_PLACE } = {}) => {
      if (!TOKEN.test(token)) return null
      const caller = await find({ token, allowExpired, place }).catch(error => {
        if (!(error instanceof IdentityUnavailable)) throw error
        report.failed(error)
        throw new ApiError(503, 'Identity temporarily unavailable.')
      })
      const isExpired = caller !== null && caller.expiresAt.getTime() <= Date.now()
      return isExpired && !allowExpired ? null : caller
    },
    signIn: async () => {
      await session.token()
    },
    close: connection.close,
  }
}

const createValidationQueue = ({ requestTimeoutSeconds }: ExternalIdentity): FairQueue =>
  createFairQueue({
    maxRunning: MAX_CONNECTIONS,
    maxRunningPerLane: MAX_CONNECTIONS,
    maxRunningPerLaneContended: MAX_RUNNING_CONTENDED,
    maxWaiting: MAX_WAITING,
    maxWaitingPerLane: MAX_WAITING_PER_LANE,
    maxWaitMilliseconds: requestTimeoutSeconds * 1000,
    refusal: (_, reason) =>
      new IdentityUnavailable(`Keystone does not keep up with the tokens to validate (${reason})`),
  })

/** Logs failures at intervals, and the recovery. */
function createReport(log: Logger): { failed: (error: IdentityUnavailable) => void; answered: () => void } {
  let last: { message: string; at: number } | null = null
  return {
    failed: ({ message }) => {
      if (last?.message === message && performance.now() - last.at < REPORT_INTERVAL_MS) return
      last = { message, at: performance.now() }
      log.warn(`Tokens cannot be validated: ${message}`)
    },
    answered: () => {
      if (last !== null) log.info('Keystone validates tokens again')
      last = null
    },
  }
}
