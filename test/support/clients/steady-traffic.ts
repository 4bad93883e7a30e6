import { createHash, randomBytes } from 'node:crypto'
import { Agent, createServer, get, type IncomingMessage, request, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

/**
 * Clients of every kind and the members that answer them, for a time full of changes. Each member is a port of
 * one machine, and an answer names its member.
 */

const KINDS = ['keep-alive', 'new', 'slow', 'websocket', 'download'] as const
export type Kind = (typeof KINDS)[number]

/**
 * A request or connection that did not end as it should. The member (`address:port`) is known once it has
 * answered on the connection.
 */
export type Failure = { kind: Kind; member: string | null; beganAt: number; endedAt: number; reason: string }
export type Tally = { done: Record<Kind, number>; failures: Failure[] }

/** What a server appends to the client's key (RFC 6455). */
const WEBSOCKET = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const SLOW_MS = 2_500
const DOWNLOAD_PIECES = 40
const PIECE = Buffer.alloc(16_384, 'x')
const PAUSE_MS = 50
const ECHO_TIMEOUT_MS = 20_000

/** Serves on `count` ports until the process ends. */
export async function startMembers(firstPort: number, count: number): Promise<void> {
  for (let port = firstPort; port < firstPort + count; port++) await startMember(port)
}

function startMember(port: number): Promise<void> {
  const answer = async ({ url, socket }: IncomingMessage, response: ServerResponse) => {
    const member = nameOf(socket)
    response.setHeader('X-Member', member)
    if (url === '/slow') await pause(SLOW_MS)
    if (url !== '/download') return response.end(member)
    response.setHeader('Content-Length', DOWNLOAD_PIECES * PIECE.length)
    for (let piece = 0; piece < DOWNLOAD_PIECES && !response.destroyed; piece++) {
      response.write(PIECE)
      await pause(100)
    }
    response.end()
  }
  const server = createServer((incoming, response) => {
    answer(incoming, response).catch(() => response.destroy())
  })
  server.keepAliveTimeout = 60_000
  server.on('upgrade', ({ headers }, socket: Socket) => {
    socket.on('error', () => socket.destroy())
    const accepted = createHash('sha1').update(`${headers['sec-websocket-key']}${WEBSOCKET}`).digest('base64')
    const lines = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade']
    socket.write([...lines, `Sec-WebSocket-Accept: ${accepted}`, `X-Member: ${nameOf(socket)}`, '', ''].join('\r\n'))
    socket.on('data', piece => socket.write(piece))
    socket.on('end', () => socket.end())
  })
  return new Promise((resolve, reject) => {
    server.on('error', reject)
    server.listen(port, '0.0.0.0', 4096, resolve)
  })
}

const nameOf = ({ localAddress, localPort }: Socket) => `${localAddress}:${localPort}`

type Clients = {
  url: string
  /** How many clients of each kind. */
  each: number
  /** The lifetime of a WebSocket. */
  longestMs: number
  /** A connection stays with the member that answered first, as over a TCP listener. */
  staysWithMember: boolean
}

/**
 * Starts clients of all kinds, each with one request after another. @returns a function that stops them once
 * their open requests have ended
 */
export function startClients({ url, each, longestMs, staysWithMember }: Clients): () => Promise<Tally> {
  let running = true
  const tally: Tally = {
    done: { 'keep-alive': 0, new: 0, slow: 0, websocket: 0, download: 0 },
    failures: [],
  }
  const client = async (kind: Kind, seat: number) => {
    const agent = new Agent({ keepAlive: kind === 'keep-alive', maxSockets: 1 })
    const answering = new WeakMap<Socket, string>()
    for (let round = 0; running; round++) {
      const beganAt = Date.now()
      const attempt: Attempt = { member: null, answering: staysWithMember ? answering : null }
      try {
        if (kind === 'websocket') await converse(url, attempt, ((seat * 7 + round * 3) % 10) * (longestMs / 10) + 200)
        else await fetchWhole(`${url}${kind === 'slow' || kind === 'download' ? kind : ''}`, agent, attempt)
        tally.done[kind]++
      } catch (error) {
        const { member } = attempt
        tally.failures.push({ kind, member, beganAt, endedAt: Date.now(), reason: String(error) })
      }
      await pause(PAUSE_MS)
    }
    agent.destroy()
  }
  const ended = Promise.all(KINDS.flatMap(kind => Array.from({ length: each }, (_, seat) => client(kind, seat))))
  return async () => {
    running = false
    await ended
    return tally
  }
}

/**
 * `answering`: the member that last answered on a connection, and so answers next when connections stay with a
 * member.
 */
type Attempt = { member: string | null; answering: WeakMap<Socket, string> | null }

function memberOf({ headers }: IncomingMessage): string | null {
  const member = headers['x-member']
  return typeof member === 'string' ? member : null
}

function fetchWhole(url: string, agent: Agent, attempt: Attempt): Promise<void> {
  return new Promise((resolve, reject) => {
    const outgoing = get(url, { agent, timeout: 20_000 }, response => {
      attempt.member = memberOf(response)
      if (attempt.member !== null) attempt.answering?.set(response.socket, attempt.member)
      response.on('error', reject)
      response.on('end', () => (response.statusCode === 200 ? resolve() : reject(new Error(`${response.statusCode}`))))
      response.resume()
    })
    outgoing.on('socket', socket => {
      attempt.member = attempt.answering?.get(socket) ?? null
    })
    outgoing.on('timeout', () => outgoing.destroy(new Error('timeout')))
    outgoing.on('error', reject)
  })
}

/** Sends something every 200 ms and expects an echo, for `milliseconds`. */
function converse(url: string, attempt: Attempt, milliseconds: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const key = randomBytes(16).toString('base64')
    const headers = {
      Connection: 'Upgrade',
      Upgrade: 'websocket',
      'Sec-WebSocket-Version': 13,
      'Sec-WebSocket-Key': key,
    }
    const outgoing = request(url, { agent: false, headers, timeout: 20_000 })
    outgoing.on('error', reject)
    outgoing.on('response', response => reject(new Error(`no upgrade: ${response.statusCode}`)))
    const speak = async (response: IncomingMessage, socket: Socket) => {
      attempt.member = memberOf(response)
      let over = false
      let heard = 0
      socket.on('data', (piece: Buffer) => {
        heard += piece.length
      })
      socket.on('error', reject)
      socket.on('close', () => (over ? resolve() : reject(new Error('closed by the other side'))))
      socket.on('end', () => over || socket.destroy())
      let said = 0
      for (const end = Date.now() + milliseconds; Date.now() < end && !socket.destroyed; ) {
        said += 4
        socket.write('ping')
        await pause(200)
      }
      for (const end = Date.now() + ECHO_TIMEOUT_MS; heard < said && Date.now() < end && !socket.destroyed; )
        await pause(20)
      if (socket.destroyed) return
      if (heard < said) reject(new Error('what was sent did not come back'))
      over = true
      socket.end()
    }
    outgoing.on('upgrade', (response, socket: Socket) => {
      speak(response, socket).catch(reject)
    })
    outgoing.end()
  })
}
