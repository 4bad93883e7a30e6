import { type KeyObject, sign } from 'node:crypto'
import { Agent, type RequestOptions, request } from 'node:https'
import type { TLSSocket } from 'node:tls'
import {
  KEY_CHANNEL_EXPORTED_BYTES,
  KEY_CHANNEL_EXPORTER,
  KEY_CHANNEL_NAME,
  proofOf,
  TOKEN_PATH,
  tokenAnswerSchema,
} from '../protocol/key-manager/key-channel.js'

export type KeyChannelOptions = {
  /** Tried in order; the one that answered last is tried first. */
  endpoints: readonly { host: string; port: number }[]
  /** PEM of the server's certificate. */
  certificate: string
  /** `controller`, or an amphora's id. */
  subject: string
  /** Ed25519. */
  privateKey: KeyObject
  /** For one request, including the connection. */
  timeoutMs?: number
}

export type ChannelRequest = { method: 'GET' | 'PUT' | 'DELETE'; path: string; accept?: string; body?: object }
export type ChannelAnswer = { status: number; bytes: Buffer }

export type KeyChannel = {
  /** @throws KeyChannelDown when no endpoint answers */
  send: (request: ChannelRequest, signal?: AbortSignal) => Promise<ChannelAnswer>
  close: () => void
}

/** Nobody at the key channel gives an answer that means something. */
export class KeyChannelDown extends Error {}

type Endpoint = KeyChannelOptions['endpoints'][number]
type Token = { text: string; validUntil: number }

const TIMEOUT_MS = 5_000
const MAX_ANSWER_BYTES = 1024 * 1024
/** A token is renewed this long before its end. */
const MARGIN_MS = 60_000
/** Statuses that say something about the object. Any other comes from a failing service or from something else. */
const CONCLUSIVE: ReadonlySet<number> = new Set([200, 204, 400, 403, 404, 409])

/** Opens the key channel. Connects on demand, and keeps connections while they are used. */
export function openKeyChannel(options: KeyChannelOptions): KeyChannel {
  const { certificate, timeoutMs = TIMEOUT_MS } = options
  const agent = new Agent({ keepAlive: true, maxSockets: 8, timeout: 60_000 })
  const trust = { ca: certificate, servername: KEY_CHANNEL_NAME, minVersion: 'TLSv1.3' as const }
  const tokens = new Map<Endpoint, Token>()
  let endpoints = [...options.endpoints]

  const signIn = async (endpoint: Endpoint, signal: AbortSignal): Promise<Token> => {
    const asked = performance.now()
    // A connection of its own: the proof holds for one connection only.
    const target = { ...endpoint, ...trust, agent: false, method: 'POST', path: TOKEN_PATH }
    const { status, bytes } = await exchange(target, signal, socket => ({
      subject: options.subject,
      signature: prove(options, socket),
    }))
    if (status !== 200) throw new KeyChannelDown(`${hostOf(endpoint)} refuses our key (status ${status})`)
    const { token, expires_in } = tokenAnswerSchema.parse(JSON.parse(bytes.toString()))
    return { text: token, validUntil: asked + expires_in * 1000 - MARGIN_MS }
  }
  const tokenFor = async (endpoint: Endpoint, signal: AbortSignal): Promise<Token> => {
    const known = tokens.get(endpoint)
    if (known !== undefined && known.validUntil > performance.now()) return known
    const fresh = await signIn(endpoint, signal)
    tokens.set(endpoint, fresh)
    return fresh
  }
  const sendTo = async (endpoint: Endpoint, asked: ChannelRequest, signal: AbortSignal): Promise<ChannelAnswer> => {
    const { method, path, accept = 'application/json', body } = asked
    for (let attempt = 1; ; attempt++) {
      const token = await tokenFor(endpoint, signal)
      const headers = { Accept: accept, 'X-Auth-Token': token.text }
      const answer = await exchange({ ...endpoint, ...trust, agent, method, path, headers }, signal, () => body)
      if (answer.status !== 401 || attempt === 2) return answer
      tokens.delete(endpoint)
    }
  }
  return {
    send: async (asked, callerSignal) => {
      const failures: string[] = []
      for (const endpoint of endpoints) {
        const timeout = AbortSignal.timeout(timeoutMs)
        const signal = callerSignal === undefined ? timeout : AbortSignal.any([timeout, callerSignal])
        try {
          const answer = await sendTo(endpoint, asked, signal)
          if (!CONCLUSIVE.has(answer.status)) throw new KeyChannelDown(`it answers ${answer.status}`)
          endpoints = [endpoint, ...endpoints.filter(other => other !== endpoint)]
          return answer
        } catch (error) {
          if (callerSignal?.aborted) throw new KeyChannelDown('the request was given up')
          const text = timeout.aborted ? `no answer within ${timeoutMs / 1000} s` : (error as Error).message
          failures.push(`${hostOf(endpoint)}: ${text}`)
        }
      }
      throw new KeyChannelDown(`The key manager does not answer (${failures.join('; ') || 'it has no address'})`)
    },
    close: () => agent.destroy(),
  }
}

const hostOf = ({ host, port }: Endpoint): string => `${host.includes(':') ? `[${host}]` : host}:${port}`

function prove({ subject, privateKey }: KeyChannelOptions, socket: TLSSocket): string {
  const exported = socket.exportKeyingMaterial(KEY_CHANNEL_EXPORTED_BYTES, KEY_CHANNEL_EXPORTER, Buffer.alloc(0))
  return sign(null, proofOf(subject, exported), privateKey).toString('base64')
}

/** @param bodyFor makes the JSON body once the connection stands */
function exchange(
  target: RequestOptions,
  signal: AbortSignal,
  bodyFor: (socket: TLSSocket) => object | undefined,
): Promise<ChannelAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request({ ...target, signal })
    const finish = (socket: TLSSocket) => {
      const body = bodyFor(socket)
      if (body === undefined) return sent.end()
      sent.setHeader('Content-Type', 'application/json')
      sent.end(JSON.stringify(body))
    }
    sent.once('error', reject)
    sent.once('socket', socket => {
      const secure = socket as TLSSocket
      if (secure.getProtocol?.() && !secure.connecting) finish(secure)
      else secure.once('secureConnect', () => finish(secure))
    })
    sent.once('response', response => {
      const chunks: Buffer[] = []
      let length = 0
      response.on('data', (chunk: Buffer) => {
        length += chunk.length
        if (length > MAX_ANSWER_BYTES) response.destroy(new Error('the answer is too long'))
        else chunks.push(chunk)
      })
      response.once('error', reject)
      response.once('end', () => resolve({ status: response.statusCode ?? 0, bytes: Buffer.concat(chunks) }))
    })
  })
}
