import { createSocket } from 'node:dgram'
import { Agent, createServer, get, type Server, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { createInterface } from 'node:readline'
import { datagramVerbs } from './datagram-verbs.js'

/**
 * Runs inside an amphora's network namespace and does what a test outside requests, one line of JSON at a time:
 * web servers as members, requests, steady load, and a socket that forwards heartbeats.
 */

type Load = { running: boolean; ok: number; errors: string[]; done: Promise<unknown> }

const members = new Map<number, Server>()
const loads = new Map<string, Load>()
/** Answers that members began and keep open, and requests that wait for their end. */
const unanswered = new Set<ServerResponse>()
const held = new Map<string, Promise<string>>()
let sessions = 0

type Request = {
  port: number
  name: string
  url: string
  clients: number
  from?: string
  headers?: Record<string, string>
}

const verbs: Record<string, (request: Request) => Promise<unknown>> = {
  ...datagramVerbs,

  member: ({ port, name }) =>
    new Promise((resolve, reject) => {
      const server = createServer(({ url }, response) => {
        // as an application that starts a session
        if (url === '/login') response.setHeader('Set-Cookie', `sid=${name}-${++sessions}; Path=/`)
        if (url !== '/held') return response.end(name)
        unanswered.add(response)
        response.on('close', () => unanswered.delete(response))
        response.write(name)
      })
      server.keepAliveTimeout = 60_000
      server.on('error', reject)
      server.listen(port, '127.0.0.1', () => resolve(null))
      members.set(port, server)
    }),

  endMember: async ({ port }) => {
    const server = members.get(port)
    members.delete(port)
    server?.closeAllConnections()
    await new Promise(resolve => server?.close(resolve))
  },

  get: ({ url, from, headers }) => request(url, false, from, headers),

  /** Starts a request whose answer stays open until `release`. @returns the member that answers */
  hold: ({ url, name }) =>
    new Promise((resolve, reject) => {
      const outgoing = get(`${url}held`, { agent: false }, response => {
        response.setEncoding('utf8')
        const ended = new Promise<string>(end => {
          response.on('end', () => end('complete'))
          response.on('error', () => end('cut'))
        })
        held.set(name, ended)
        response.once('data', resolve)
      })
      outgoing.on('error', reject)
    }),

  release: async () => {
    for (const response of unanswered) response.end()
  },

  /** Waits for the end of a request. */
  held: ({ name }) => held.get(name) ?? Promise.reject(new Error('there is no such request')),

  /** A request that never ends: it stays open until it is cut. */
  openRequest: ({ port }) =>
    new Promise((resolve, reject) => {
      const socket = connect(port, '127.0.0.1')
      socket.on('error', reject)
      socket.write('POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nbegin', () => resolve(null))
    }),

  startLoad: async ({ name, url, clients }) => {
    const load: Load = { running: true, ok: 0, errors: [], done: Promise.resolve() }
    const client = async (keepAlive: boolean) => {
      const agent = new Agent({ keepAlive, maxSockets: 1 })
      while (load.running) {
        try {
          const { status } = await request(url, agent)
          if (status === 200) load.ok++
          else load.errors.push(`status ${status}`)
        } catch (error) {
          load.errors.push(String(error))
        }
        await new Promise(resolve => setTimeout(resolve, 3))
      }
      agent.destroy()
    }
    load.done = Promise.all(Array.from({ length: clients }, (_, i) => client(i % 2 === 0)))
    loads.set(name, load)
  },

  endLoad: async ({ name }) => {
    const load = loads.get(name)!
    load.running = false
    await load.done
    return { ok: load.ok, errors: load.errors }
  },

  heartbeats: ({ port }) =>
    new Promise(resolve => {
      const socket = createSocket('udp4')
      socket.on('message', bytes => say({ heartbeat: bytes.toString('hex') }))
      socket.bind(port, '127.0.0.1', () => resolve(null))
    }),
}

function request(
  url: string,
  agent: Agent | false,
  localAddress?: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; body: string; cookies: string[] }> {
  return new Promise((resolve, reject) => {
    const outgoing = get(url, { agent, localAddress, headers, timeout: 3_000 }, response => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', piece => {
        body += piece
      })
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, body, cookies: response.headers['set-cookie'] ?? [] }),
      )
      response.on('error', reject)
    })
    outgoing.on('timeout', () => outgoing.destroy(new Error('timeout')))
    outgoing.on('error', reject)
  })
}

function say(message: unknown): void {
  process.stdout.write(`${JSON.stringify(message)}\n`)
}

createInterface({ input: process.stdin }).on('line', line => {
  const { id, verb, ...rest } = JSON.parse(line)
  verbs[verb]!(rest).then(
    result => say({ id, result: result ?? null }),
    error => say({ id, error: String(error) }),
  )
})
process.stdin.on('end', () => process.exit(0))
