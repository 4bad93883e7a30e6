import { mkdtempSync, rmSync } from 'node:fs'
import { type Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { HAPROXY_PEERS_PORT } from '../../../amphora-agent/protocol/paths.js'
import type { ListenerNode, PoolNode } from '../../../controller/load-balancer/tree/tree.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import type { AmphoraFacts } from '../../../controller/provider/amphora/rendering/facts.js'
import { aDualStackVipInterface, aMember, aTree, someFacts, uuid } from '../../golden/models.js'
import { ownPorts } from '../ports.js'
import { startHaproxy } from '../services/haproxy.js'
import type { Told } from '../services/telling-member.js'

type Desired = {
  listeners: ListenerNode[]
  pools: PoolNode[]
  facts?: Partial<AmphoraFacts>
  /** Ports on 127.0.0.1; new ones by default. */
  ports?: number[]
  /** PEM of TLS material by reference. */
  material?: ReadonlyMap<string, string>
  /** Replaces the amphora's port, which several tests cannot use at the same time. */
  peersPort?: number
}

/** A member on 127.0.0.1. */
export const aLocalMember = (number: number, port: number, change: Parameters<typeof aMember>[1] = {}) =>
  aMember(number, { address: '127.0.0.1', protocolPort: port, ...change })

/**
 * A real HAProxy with the given listeners on the VIPs 127.0.0.1 and ::1, each on its own port. It ends with the
 * test.
 */
export async function serveOptions(t: Test, { listeners, pools, facts, ports, material, peersPort }: Desired) {
  const chosen = ports ?? (await ownPorts(listeners.length))
  const placed = listeners.map((listener, index) => ({ ...listener, protocolPort: chosen[index] ?? 0 }))
  const tree = aTree({ listeners: placed, pools, additionalVips: [{ address: '::1', subnetId: uuid(7, 6) }] })
  const onLoopback = { ...tree, vip: { ...tree.vip, address: '127.0.0.1' } }
  const nic = aDualStackVipInterface()
  const { haproxy } = renderDesired(onLoopback, someFacts({ interfaces: [nic], ...facts }))
  const [ownPort = 0] = await ownPorts(1)
  const text = (haproxy?.text ?? '').replaceAll(
    new RegExp(`^( {4}peer .*):${HAPROXY_PEERS_PORT}$`, 'gm'),
    `$1:${peersPort ?? ownPort}`,
  )
  const directory = mkdtempSync(join(tmpdir(), 'krater-options-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const running = await startHaproxy(directory, text, { ...(haproxy ?? {}), ...(material && { material }) })
  t.teardown(running.stop)
  const portOf = new Map(placed.map(({ id, protocolPort }) => [id, protocolPort]))
  return {
    command: running.command,
    /** The port of the listener with that number. */
    port: (listener: number): number => portOf.get(uuid(2, listener)) ?? 0,
  }
}

export type Answer = { status: number; cookies: string[]; told: Partial<Told>; body: string }

export type Asking = {
  host?: string
  from?: string
  path?: string
  method?: string
  headers?: Record<string, string>
  agent?: Agent
}

/** Sends one request, over a new connection unless an agent is given. @throws Error without an answer */
export function ask(port: number, asking: Asking = {}): Promise<Answer> {
  const { host = '127.0.0.1', from, path = '/', method = 'GET', headers = {}, agent } = asking
  return new Promise((resolve, reject) => {
    const options = { host, port, path, method, headers, localAddress: from, agent: agent ?? false, timeout: 8_000 }
    const outgoing = request(options, response => {
      let body = ''
      response.setEncoding('utf8').on('data', piece => {
        body += piece
      })
      response.on('error', reject)
      response.on('end', () => {
        const told: Partial<Told> = body.startsWith('{') ? JSON.parse(body) : {}
        resolve({ status: response.statusCode ?? 0, cookies: response.headers['set-cookie'] ?? [], told, body })
      })
    })
    outgoing.on('timeout', () => outgoing.destroy(new Error('no answer within 8 s')))
    outgoing.on('error', reject)
    outgoing.end()
  })
}

/** The names of the members that answer `count` requests, one after another. */
export async function namesOf(port: number, count: number, asking: Asking | ((index: number) => Asking) = {}) {
  const names: string[] = []
  for (let index = 0; index < count; index++) {
    const answer = await ask(port, typeof asking === 'function' ? asking(index) : asking)
    names.push(answer.told.name ?? String(answer.status))
  }
  return names
}

export type Conversation = {
  socket: Socket
  /** Sends a line. @returns what the member reports */
  say: (text: string) => Promise<Told>
  /** Everything received so far. */
  heard: () => string
  /** Resolves when something arrives or the other side ends, with the milliseconds since the connection. */
  stirred: Promise<number>
  ended: Promise<number>
}

/** A connection that exchanges lines; it is closed abruptly at the end of the test. */
export function converse(
  t: Test,
  port: number,
  { host = '127.0.0.1', ...local }: { host?: string; localAddress?: string; localPort?: number } = {},
): Promise<Conversation> {
  return new Promise((resolve, reject) => {
    const started = performance.now()
    const since = () => performance.now() - started
    const socket = connect({ host, port, ...local })
    let text = ''
    let hear: (() => void) | null = null
    socket.setEncoding('utf8')
    const ended = new Promise<number>(done => socket.once('close', () => done(since())))
    const stirred = new Promise<number>(done => {
      socket.once('data', () => done(since()))
      socket.once('close', () => done(since()))
    })
    socket.on('data', piece => {
      text += piece
      hear?.()
    })
    socket.on('error', reject)
    t.teardown(() => socket.destroy())
    const say = (line: string) =>
      new Promise<Told>((told, failed) => {
        text = ''
        hear = () => {
          if (text.includes('\n')) told(JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('\n'))))
        }
        socket.once('close', () => failed(new Error('closed before an answer')))
        socket.write(`${line}\n`)
      })
    socket.once('connect', () => resolve({ socket, say, heard: () => text, stirred, ended }))
  })
}
