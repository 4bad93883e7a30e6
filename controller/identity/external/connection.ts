import type { IncomingHttpHeaders } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { AnswerTooLarge, createExchange, NotConnected, transportErrorText } from '../../http/exchange.js'
import type { ExternalIdentity } from './external-identity.js'
import { IdentityAway } from './identity-away.js'

export type KeystoneRequest = { method: 'GET' | 'POST'; path: string; headers?: Record<string, string>; body?: object }

/** `body` is parsed JSON; undefined when the answer holds none. */
export type KeystoneAnswer = { status: number; headers: IncomingHttpHeaders; body: unknown }

export type Connection = {
  /** `path` goes behind the URL that ends in /v3. @throws IdentityAway when no whole answer comes in time */
  send: (request: KeystoneRequest) => Promise<KeystoneAnswer>
  close: () => void
}

/** Connections that are kept open; more requests than these are never under way. */
export const MOST_AT_ONCE = 16

/** Tokens with large catalogues are far below this. */
const MOST_ANSWER_BYTES = 4 * 1024 * 1024

const TRIES = 4
const FIRST_PAUSE_MS = 100
/** After a failure to connect at all, those who come next are told so at once for this long. */
const REST_MS = 500

/** Requests to one Keystone over connections that are kept alive, each with a time limit, tried again when the transport fails. */
export function connectToKeystone(
  identity: Pick<ExternalIdentity, 'url' | 'security' | 'connectTimeoutSeconds' | 'requestTimeoutSeconds'>,
): Connection {
  const exchange = createExchange({ ...identity, maxConnections: MOST_AT_ONCE })
  let resting: { until: number; reason: string } | null = null

  const send = async ({ method, path, headers = {}, body }: KeystoneRequest): Promise<KeystoneAnswer> => {
    if (resting !== null && performance.now() < resting.until) throw new IdentityAway(resting.reason)
    const signal = AbortSignal.timeout(identity.requestTimeoutSeconds * 1000)
    const request = { method, path, headers, body, maxAnswerBytes: MOST_ANSWER_BYTES }
    for (let tried = 1; ; tried++) {
      try {
        const answer = await exchange.send(request, signal)
        resting = null
        return { status: answer.status, headers: answer.headers, body: parsed(answer.bytes.toString('utf8')) }
      } catch (error) {
        if (error instanceof AnswerTooLarge) throw new IdentityAway(`Keystone at ${identity.url} ${error.message}`)
        const late = signal.aborted
        const reason = late
          ? `Keystone at ${identity.url} gave no answer within ${identity.requestTimeoutSeconds} s`
          : `Keystone at ${identity.url} cannot be reached: ${transportErrorText(error)}`
        if (late || tried === TRIES) {
          if (error instanceof NotConnected) resting = { until: performance.now() + REST_MS, reason }
          throw new IdentityAway(reason)
        }
        await delay(FIRST_PAUSE_MS * 2 ** (tried - 1), undefined, { signal }).catch(() => undefined)
      }
    }
  }
  return { send, close: exchange.close }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
