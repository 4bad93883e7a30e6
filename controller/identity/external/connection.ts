import { Agent as HttpAgent, type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'
import { setTimeout as delay } from 'node:timers/promises'
import { IdentityAway } from './identity-away.js'
import type { ExternalIdentity } from './options.js'

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
  const exchange = createExchange(identity)
  let resting: { until: number; reason: string } | null = null

  const send = async (request: KeystoneRequest): Promise<KeystoneAnswer> => {
    if (resting !== null && performance.now() < resting.until) throw new IdentityAway(resting.reason)
    const signal = AbortSignal.timeout(identity.requestTimeoutSeconds * 1000)
    for (let tried = 1; ; tried++) {
      try {
        const answer = await exchange.send(request, signal)
        resting = null
        return answer
      } catch (error) {
        if (error instanceof IdentityAway) throw error
        const late = signal.aborted
        const reason = late
          ? `Keystone at ${identity.url} gave no answer within ${identity.requestTimeoutSeconds} s`
          : `Keystone at ${identity.url} cannot be reached: ${wordsOf(error)}`
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

/** The request did not even leave. */
class NotConnected extends Error {}

function createExchange({
  url,
  security,
  connectTimeoutSeconds,
}: Pick<ExternalIdentity, 'url' | 'security' | 'connectTimeoutSeconds'>) {
  const isTls = url.startsWith('https:')
  const pool = { keepAlive: true, maxSockets: MOST_AT_ONCE, maxFreeSockets: 4, timeout: 60_000 }
  const agent = isTls
    ? new HttpsAgent({
        ...pool,
        rejectUnauthorized: !security.insecure,
        ...(security.ca !== undefined && { ca: security.ca }),
        ...(security.clientCertificate !== undefined && { cert: security.clientCertificate }),
        ...(security.clientKey !== undefined && { key: security.clientKey }),
      })
    : new HttpAgent(pool)

  const send = ({ method, path, headers, body }: KeystoneRequest, signal: AbortSignal): Promise<KeystoneAnswer> =>
    new Promise((resolve, reject) => {
      const text = body === undefined ? undefined : JSON.stringify(body)
      const request = (isTls ? requestHttps : requestHttp)(`${url}${path}`, {
        method,
        agent,
        signal,
        headers: {
          Accept: 'application/json',
          ...headers,
          ...(text !== undefined && { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }),
        },
      })
      let connected = false
      request.once('socket', socket => {
        connected = !socket.connecting
        if (connected) return
        const late = () => request.destroy(new Error(`no connection within ${connectTimeoutSeconds} s`))
        const limit = setTimeout(late, connectTimeoutSeconds * 1000)
        socket.once(isTls ? 'secureConnect' : 'connect', () => {
          connected = true
          clearTimeout(limit)
        })
        request.once('close', () => clearTimeout(limit))
      })
      request.once('error', error => reject(connected ? error : new NotConnected(wordsOf(error))))
      request.once('response', response => {
        readAnswer(response, url).then(resolve, reject)
      })
      request.end(text)
    })
  return { send, close: () => agent.destroy() }
}

/** @throws IdentityAway when the body is too large */
async function readAnswer(response: IncomingMessage, url: string): Promise<KeystoneAnswer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > MOST_ANSWER_BYTES) {
      response.destroy()
      throw new IdentityAway(`Keystone at ${url} sent more than ${MOST_ANSWER_BYTES} bytes`)
    }
    chunks.push(chunk)
  }
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: parsed(Buffer.concat(chunks).toString('utf8')),
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function wordsOf(error: unknown): string {
  // Several addresses were tried: the errors are inside.
  if (error instanceof AggregateError) return error.errors.map(wordsOf).join('; ')
  return error instanceof Error ? error.message : String(error)
}
