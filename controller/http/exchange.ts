import { Agent as HttpAgent, type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'

/** PEM texts. */
export type TransportSecurity = {
  ca?: string
  clientCertificate?: string
  clientKey?: string
  /** Takes any certificate: for laboratories. */
  insecure: boolean
}

export type ExchangeOptions = {
  /** Paths go behind it. */
  url: string
  security: TransportSecurity
  connectTimeoutSeconds: number
  /** Connections that are kept open; requests beyond wait for one. */
  mostAtOnce: number
}

export type OutgoingRequest = {
  method: string
  path: string
  headers: Readonly<Record<string, string>>
  /** JSON. */
  body?: object | undefined
  /** Longer answers are cut off. */
  mostAnswerBytes: number
}

export type IncomingAnswer = { status: number; headers: IncomingHttpHeaders; bytes: Buffer }

export type Exchange = {
  /**
   * One request and its answer, whatever its status; redirections are not followed.
   * @throws NotConnected, AnswerTooLarge, or what the transport or the signal throws
   */
  send: (request: OutgoingRequest, signal: AbortSignal) => Promise<IncomingAnswer>
  close: () => void
}

/** The request did not even leave. */
export class NotConnected extends Error {}

export class AnswerTooLarge extends Error {}

/** Requests to one server over connections that are kept alive. */
export function createExchange({ url, security, connectTimeoutSeconds, mostAtOnce }: ExchangeOptions): Exchange {
  const isTls = url.startsWith('https:')
  const pool = { keepAlive: true, maxSockets: mostAtOnce, maxFreeSockets: 4, timeout: 60_000 }
  const agent = isTls
    ? new HttpsAgent({
        ...pool,
        rejectUnauthorized: !security.insecure,
        ...(security.ca !== undefined && { ca: security.ca }),
        ...(security.clientCertificate !== undefined && { cert: security.clientCertificate }),
        ...(security.clientKey !== undefined && { key: security.clientKey }),
      })
    : new HttpAgent(pool)

  const send: Exchange['send'] = ({ method, path, headers, body, mostAnswerBytes }, signal) =>
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
      request.once('error', error => reject(connected ? error : new NotConnected(transportWords(error))))
      request.once('response', response => {
        readAnswer(response, mostAnswerBytes).then(resolve, reject)
      })
      request.end(text)
    })
  return { send, close: () => agent.destroy() }
}

async function readAnswer(response: IncomingMessage, mostBytes: number): Promise<IncomingAnswer> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > mostBytes) {
      response.destroy()
      throw new AnswerTooLarge(`sent more than ${mostBytes} bytes`)
    }
    chunks.push(chunk)
  }
  return { status: response.statusCode ?? 0, headers: response.headers, bytes: Buffer.concat(chunks) }
}

/** What went wrong with a transport, in words. */
export function transportWords(error: unknown): string {
  // Several addresses were tried: the errors are inside.
  if (error instanceof AggregateError) return error.errors.map(transportWords).join('; ')
  return error instanceof Error ? error.message : String(error)
}
