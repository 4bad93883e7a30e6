import { ApiError } from '../../http/errors.js'
import type { Logger } from '../../log/log.js'
import { createFairQueue, type Place } from '../../process/fair-queue.js'
import { outsideTurn } from '../../process/turn.js'
import type { Caller, TokenValidator } from '../caller.js'
import { tokenHash } from '../tokens/store.js'
import { askKeystone } from './ask-keystone.js'
import { createClockWatch } from './clock-skew.js'
import { connectToKeystone, MOST_AT_ONCE } from './connection.js'
import type { ExternalIdentity } from './external-identity.js'
import { IdentityAway } from './identity-away.js'
import { createServiceSession } from './service-session.js'
import { signInAtKeystone } from './sign-in.js'
import { createTokenCache } from './token-cache.js'
import { callerOfToken } from './token-document.js'

export type ExternalValidator = {
  validate: TokenValidator
  /** Signs in at once, so that wrong settings show at the start. @throws IdentityAway */
  signIn: () => Promise<void>
  close: () => void
}

const NOBODY: Place = ['', '']

type Question = { token: string; allowExpired: boolean; place: Place }

/** More tokens than are in use within the life of one. */
const MOST_CACHED = 20_000
/** How long a token that Keystone does not know is refused without asking again. */
const INVALID_SECONDS = 10
const MOST_WAITING = 512
const MOST_WAITING_PER_LANE = 128
/** While others ask too. */
const MAX_RUNNING_CONTENDED = 4
/** What is longer, or has other characters, is nobody's token. */
const TOKEN = /^[\x21-\x7e]{1,8192}$/
const BETWEEN_REPORTS_MS = 10_000

/**
 * Validates tokens at a Keystone that somebody else runs. A token that was found good is used without asking again until
 * `tokenCacheSeconds` after Keystone was asked, or its own end; so long may a revocation stay unseen. Nobody can make us ask more than so
 * many times at once: bad tokens are remembered for some seconds, equal questions at the same time are one, callers take turns, and those
 * who would wait long are told 503. Tokens are kept by their hash only.
 */
export function createExternalValidator(identity: ExternalIdentity, log: Logger): ExternalValidator {
  const connection = connectToKeystone(identity)
  const session = createServiceSession(() => signInAtKeystone(connection, identity.credentials), log)
  const ask = { connection, session, watchClock: createClockWatch(log) }
  const queue = createFairQueue({
    maxRunning: MOST_AT_ONCE,
    maxRunningPerLane: MOST_AT_ONCE,
    maxRunningPerLaneContended: MAX_RUNNING_CONTENDED,
    maxWaiting: MOST_WAITING,
    maxWaitingPerLane: MOST_WAITING_PER_LANE,
    maxWaitMilliseconds: identity.requestTimeoutSeconds * 1000,
    refusal: (_, reason) =>
      new IdentityAway(`there are more tokens to validate than Keystone keeps up with (${reason})`),
  })
  const good = createTokenCache<Caller>(MOST_CACHED)
  const bad = createTokenCache<true>(MOST_CACHED)
  const underWay = new Map<string, Promise<Caller | null>>()
  const report = createReport(log)

  const lookUp = async (key: string, { token, allowExpired, place }: Question): Promise<Caller | null> => {
    const leave = await queue.enter(place)
    const asked = performance.now()
    const document = await askKeystone(ask, token, { allowExpired }).finally(leave)
    report.answered()
    if (document === null) {
      bad.put(key, true, performance.now() + INVALID_SECONDS * 1000)
      return null
    }
    const caller = callerOfToken(document)
    good.put(key, caller, asked + identity.tokenCacheSeconds * 1000)
    return caller
  }

  const find = async (question: Question): Promise<Caller | null> => {
    const key = `${question.allowExpired}${tokenHash(question.token).toString('base64')}`
    const cached = good.get(key)
    if (cached !== undefined) return cached
    if (bad.get(key)) return null
    return outsideTurn(() => underWay.get(key) ?? begin(key, question))
  }

  const begin = (key: string, question: Question): Promise<Caller | null> => {
    const looking = lookUp(key, question).finally(() => underWay.delete(key))
    underWay.set(key, looking)
    return looking
  }

  return {
    validate: async (token, { allowExpired = false, place = NOBODY } = {}) => {
      if (!TOKEN.test(token)) return null
      const caller = await find({ token, allowExpired, place }).catch(error => {
        if (!(error instanceof IdentityAway)) throw error
        report.failed(error)
        throw new ApiError(503, 'Identity temporarily unavailable.')
      })
      const isOver = caller !== null && caller.expiresAt.getTime() <= Date.now()
      return isOver && !allowExpired ? null : caller
    },
    signIn: async () => {
      await session.token()
    },
    close: connection.close,
  }
}

/** Tells the log of failures now and then, and when they are over. */
function createReport(log: Logger): { failed: (error: IdentityAway) => void; answered: () => void } {
  let last: { words: string; at: number } | null = null
  return {
    failed: ({ message }) => {
      if (last?.words === message && performance.now() - last.at < BETWEEN_REPORTS_MS) return
      last = { words: message, at: performance.now() }
      log.warn(`Tokens cannot be validated: ${message}`)
    },
    answered: () => {
      if (last !== null) log.info('Keystone validates tokens again')
      last = null
    },
  }
}
