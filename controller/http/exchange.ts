import { Agent as HttpAgent, type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'

/** PEM texts. */
export type TransportSecurity = {
  ca?: string
  clientCertificate?: string
  clientKey?: string
  /** Accepts any certificate, for test setups. */
  insecure: boolean
}

export type ExchangeOptions = {
  /** Paths are appended to it. */
  url: string
  security: TransportSecurity
  connectTimeoutSeconds: number
  /** Further requests wait for a free connection. */
  maxConnections: number
}

export type OutgoingRequest = {
  method: string
  path: string
  headers: Readonly<Record<string, string>>
  /** JSON. */
  body?: object | undefined
  /** A longer answer is an error. */
  maxAnswerBytes: number
}

export type IncomingAnswer = { status: number; headers: IncomingHttpHeaders; bytes: Buffer }

export type Exchange = {
  /**
   * Sends a request and returns its answer, whatever the status. Does not follow redirects.
   * @throws NotConnected, AnswerTooLarge, or an error of the transport or the signal
   */
  send: (request: OutgoingRequest, signal: AbortSignal) => Promise<IncomingAnswer>
  close: () => void
}

/** The request was not sent. The cause is the error of the transport. */
export class NotConnected extends Error {}

export class AnswerTooLarge extends Error {}

/** Sends requests to one server over connections that are kept alive. */
export function createExchange({ url, security, connectTimeoutSeconds, maxConnections }: ExchangeOptions): Exchange {
  const isTls = url.startsWith('https:')
  const pool = { keepAlive: true, maxSockets: maxConnections, maxFreeSockets: 4, timeout: 60_000 }
  const agent = isTls
    ? new HttpsAgent({
        ...pool,
        rejectUnauthorized: !security.insecure,
        ...(security.ca !== undefined && { ca: security.ca }),
        ...(security.clientCertificate !== undefined && { cert: security.clientCertificate }),
        ...(security.clientKey !== undefined && { key: security.clientKey }),
      })
    : new HttpAgent(pool)

  const send: Exchange['send'] = ({ method, path, headers, body, maxAnswerBytes }, signal) =>
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
        const giveUp = () => request.destroy(new Error(`no connection within ${connectTimeoutSeconds} s`))
        const limit = setTimeout(giveUp, connectTimeoutSeconds * 1000)
        socket.once(isTls ? 'secureConnect' : 'connect', () => {
          connected = true
          clearTimeout(limit)
        })
        request.once('close', () => clearTimeout(limit))
      })
      request.once('error', error =>
        reject(connected ? error : new NotConnected(transportErrorText(error), { cause: error })),
      )
      request.once('response', response => {
        readAnswer(response, maxAnswerBytes).then(resolve, reject)
      })
      request.end(text)
    })
  return { send, close: () => agent.destroy() }
}

async function readAnswer(response: IncomingMessage, maxBytes: number): Promise<IncomingAnswer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBytes) {
      response.destroy()
      throw new AnswerTooLarge(`sent more than ${maxBytes} bytes`)
    }
    chunks.push(chunk)
  }
  return { status: response.statusCode ?? 0, headers: response.headers, bytes: Buffer.concat(chunks) }
}

/** The text of a transport error. */
export function transportErrorText(error: unknown): string {
  // Holds one error per address tried.
  if (error instanceof AggregateError) return error.errors.map(transportErrorText).join('; ')
  return error instanceof Error ? error.message : String(error)
}
