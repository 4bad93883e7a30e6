import { once } from 'node:events'
import { createConnection, createServer, type Server, type Socket, type TcpNetConnectOpts } from 'node:net'
import { pipeline } from 'node:stream'
import type { Log } from '../log/log.js'
import type { Desired } from '../protocol/desired.js'
import type { Handover, TablesTaken } from '../protocol/handover.js'
import { HAPROXY_PEERS_PORT } from '../protocol/paths.js'
import { waitFor } from '../time/wait.js'
import {
  ACCEPTED,
  HEARTBEAT,
  peerHello,
  RESYNC_CONFIRM,
  RESYNC_FINISHED,
  RESYNC_REQUEST,
  wholeMessages,
} from './peer-messages.js'
import { TABLES_PORT } from './plan-handover.js'

/** The VIP waits at most this long. A hundred thousand entries need a fraction of it. */
const TIMEOUT_MS = 10_000
const ANSWER_TIMEOUT_MS = 2_000
const RETRY_MS = 100
/** HAProxy sends changes to a peer of its own name only when that peer sends something. */
const HEARTBEAT_MS = 50

/**
 * Copies the stick tables of a leaving amphora to the one that takes over, before the VIP moves. The agents forward
 * the messages; the one that takes over initiates. Each addresses its HAProxy by HAProxy's own name, as that
 * HAProxy's worker before or after a reload would: so neither HAProxy needs the other as a configured peer, which
 * would take a reload of both.
 */
export class StickTables {
  readonly #amphoraId: string
  readonly #desired: () => Desired | null
  readonly #log: Log
  readonly #open = new Set<Socket>()
  #server: Server | null = null
  /** The result of an attempt of an earlier round is ignored. */
  #round = 0

  /** @param amphoraId HAProxy's own name among its peers */
  constructor(amphoraId: string, desired: () => Desired | null, log: Log) {
    this.#amphoraId = amphoraId
    this.#desired = desired
    this.#log = log
  }

  /**
   * Lets the other amphora connect to this one's HAProxy. May be repeated.
   * @throws Error if the port is not available
   */
  async offer({ own }: Handover): Promise<void> {
    if (this.#server !== null) return
    const opened = createServer(socket => void this.#accept(socket))
    opened.listen(TABLES_PORT, own)
    await once(opened, 'listening')
    opened.on('error', error => this.#log.error(`handover: stick tables: ${error.message}`))
    this.#server = opened
  }

  /** Copies all entries of the other amphora's stick tables, and from then on those that change. */
  async take(handover: Handover): Promise<TablesTaken> {
    this.end()
    const round = this.#round
    if (!hasStickTables(this.#desired())) return 'none'
    const until = performance.now() + TIMEOUT_MS
    const attempt = () => this.#attempt(handover, round, until)
    return (await waitFor(attempt, { timeoutMs: TIMEOUT_MS, everyMs: RETRY_MS })) ?? 'missing'
  }

  /**
   * Closes the connections: a worker that is about to become an old one hands its own tables over, under the same
   * name.
   */
  interrupt(): void {
    for (const socket of this.#open) socket.destroy()
  }

  end(): void {
    this.#round += 1
    this.#server?.close()
    this.#server = null
    this.interrupt()
  }

  /** @returns null to try again */
  async #attempt(handover: Handover, round: number, until: number): Promise<TablesTaken | null> {
    try {
      if (await this.#copyUntil(handover, until)) return 'all'
    } catch (error) {
      this.#log.info(`handover: stick tables: ${String(error)}`)
    }
    if (round !== this.#round) return 'missing'
    this.interrupt()
    return null
  }

  /** @returns whether HAProxy stored all entries by then */
  async #copyUntil({ own: localAddress, peer: host }: Handover, until: number): Promise<boolean> {
    const other = await this.#connect({ host, localAddress, port: TABLES_PORT })
    const own = await this.#connectHaproxy()
    const heartbeat = setInterval(() => {
      if (other.destroyed) clearInterval(heartbeat)
      for (const socket of [own, other]) if (socket.writable) socket.write(HEARTBEAT)
    }, HEARTBEAT_MS)
    other.write(Buffer.concat([RESYNC_FINISHED, RESYNC_REQUEST]))
    return new Promise(resolve => {
      const answers = wholeMessages(head => head.equals(RESYNC_CONFIRM) && resolve(true))
      pipeline(other, wholeMessages(), own, () => resolve(false))
      pipeline(own, answers, other, () => resolve(false))
      setTimeout(() => resolve(false), until - performance.now()).unref()
    })
  }

  async #accept(other: Socket): Promise<void> {
    this.#track(other)
    try {
      const own = await this.#connectHaproxy()
      pipeline(other, own, () => {})
      pipeline(own, other, () => {})
    } catch (error) {
      this.#log.info(`handover: stick tables: ${String(error)}`)
      other.destroy()
    }
  }

  /** @throws Error also while HAProxy is connected to its former worker */
  async #connectHaproxy(): Promise<Socket> {
    const host = this.#desired()?.pair?.address ?? '127.0.0.1'
    const socket = await this.#connect({ host, port: HAPROXY_PEERS_PORT })
    socket.write(peerHello(this.#amphoraId))
    const answer = await read(socket, ACCEPTED.length)
    if (answer !== ACCEPTED) throw new Error(`HAProxy refused the peer connection with status ${answer.trim()}`)
    return socket
  }

  async #connect(options: TcpNetConnectOpts): Promise<Socket> {
    const socket = this.#track(createConnection(options))
    await once(socket, 'connect', { signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) })
    return socket
  }

  #track(socket: Socket): Socket {
    this.#open.add(socket)
    socket.on('close', () => this.#open.delete(socket))
    socket.on('error', error => this.#log.info(`handover: stick tables: ${error.message}`))
    return socket
  }
}

const hasStickTables = (desired: Desired | null): boolean => /^peers /m.test(desired?.haproxy?.text ?? '')

async function read(socket: Socket, size: number): Promise<string> {
  const signal = AbortSignal.timeout(ANSWER_TIMEOUT_MS)
  for (;;) {
    const piece: Buffer | null = socket.read(size)
    if (piece !== null) return piece.toString('latin1')
    await once(socket, 'readable', { signal })
  }
}
