import type { IncomingHttpHeaders } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { AnswerTooLarge, createExchange, NotConnected, transportErrorText } from '../../http/exchange.js'
import type { ExternalIdentity } from './external-identity.js'
import { IdentityUnavailable } from './identity-unavailable.js'

export type KeystoneRequest = {
  method: 'GET' | 'POST' | 'DELETE'
  path: string
  headers?: Record<string, string>
  body?: object
}

/** `body` is undefined if the answer is not JSON. */
export type KeystoneAnswer = { status: number; headers: IncomingHttpHeaders; body: unknown }

export type Connection = {
  /** `path` is relative to the URL that ends in /v3. @throws IdentityUnavailable if no complete answer arrives in time */
  send: (request: KeystoneRequest) => Promise<KeystoneAnswer>
  close: () => void
}

/** The maximum number of open connections, and so of concurrent requests. */
export const MAX_CONNECTIONS = 16

/** Far more than a token with a large catalogue. */
const MAX_ANSWER_BYTES = 4 * 1024 * 1024

const MAX_ATTEMPTS = 4
const FIRST_BACKOFF_MS = 100
/** After a failure to connect, requests fail at once for this long. */
const UNREACHABLE_MS = 500

/** Sends requests to a Keystone over keep-alive connections, with a timeout and retries if the transport fails. */
export function connectToKeystone(
  identity: Pick<ExternalIdentity, 'url' | 'security' | 'connectTimeoutSeconds' | 'requestTimeoutSeconds'>,
): Connection {
  const exchange = createExchange({ ...identity, maxConnections: MAX_CONNECTIONS })
  let unreachable: { until: number; reason: string } | null = null

  const send = async ({ method, path, headers = {}, body }: KeystoneRequest): Promise<KeystoneAnswer> => {
    if (unreachable !== null && performance.now() < unreachable.until) throw new IdentityUnavailable(unreachable.reason)
    const signal = AbortSignal.timeout(identity.requestTimeoutSeconds * 1000)
    const request = { method, path, headers, body, maxAnswerBytes: MAX_ANSWER_BYTES }
    for (let attempt = 1; ; attempt++) {
      try {
        const answer = await exchange.send(request, signal)
        unreachable = null
        return { status: answer.status, headers: answer.headers, body: parseJson(answer.bytes.toString('utf8')) }
      } catch (error) {
        if (error instanceof AnswerTooLarge)
          throw new IdentityUnavailable(`Keystone at ${identity.url} ${error.message}`)
        const timedOut = signal.aborted
        const reason = timedOut
          ? `Keystone at ${identity.url} did not answer within ${identity.requestTimeoutSeconds} s`
          : `Keystone at ${identity.url} cannot be reached: ${transportErrorText(error)}`
        if (timedOut || attempt === MAX_ATTEMPTS) {
          if (error instanceof NotConnected) unreachable = { until: performance.now() + UNREACHABLE_MS, reason }
          throw new IdentityUnavailable(reason)
        }
        await delay(FIRST_BACKOFF_MS * 2 ** (attempt - 1), undefined, { signal }).catch(() => undefined)
      }
    }
  }
  return { send, close: exchange.close }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
