import type { Duplex } from 'node:stream'
import type { RelayRequest, ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import { RELAY_SOCKET } from '../../../../amphora-agent/protocol/paths.js'
import type { Logger } from '../../../log/log.js'
import type { AgentVerb } from './answers.js'
import type { AgentTarget } from './channel.js'
import type { RequestBody } from './conversation.js'
import { AgentRefused, AgentUnreachable } from './errors.js'
import { SshConnection } from './ssh-connection.js'

export type { AgentTarget, AgentVerb, RequestBody }
export { AgentRefused, AgentUnreachable }

/**
 * Milliseconds for the whole request (default 60 s), and for connecting (default 10 s). Connecting may take longer than the
 * request: the next one finds it further on.
 */
export type AgentLimits = { timeoutMs?: number; connectTimeoutMs?: number }

export type AgentConnections = {
  /**
   * Sends a request to an amphora's agent, connecting first if needed. If the connection turns out to be dead, resends
   * once over a new one: every verb is safe to repeat.
   * @throws AgentUnreachable, AgentRefused, AgentIncompatible
   */
  request<V extends AgentVerb>(target: AgentTarget, body: RequestBody<V>, limits?: AgentLimits): Promise<ResultOf[V]>
  /**
   * Connects to a listener of the amphora through its agent, to see what it serves.
   * @param timeoutMs for the stream to it, connecting included
   * @throws AgentUnreachable
   */
  relay(target: AgentTarget, destination: RelayRequest, timeoutMs: number): Promise<Duplex>
  /** Drops the connection to a deleted amphora. Pending requests fail. */
  close(amphoraId: string): void
  /** Drops all connections. Afterwards no socket or timer is left, and every request fails. */
  stop(): Promise<void>
}

export type AgentConnectionsOptions = {
  /** OpenSSH private key. */
  controllerKey: string
  /** Address and pin of a machine that Krater did not make, by the id of its amphora; null for all others. */
  accessOf?: (amphoraId: string) => Promise<{ address: string; port: number; hostKey: Buffer } | null>
  log: Logger
  /** Idle time after which a connection is dropped. */
  idleMs?: number
}

const CONNECT_LIMIT_MS = 10_000
const VERB_LIMIT_MS = 60_000
const IDLE_MS = 300_000

/** One persistent SSH connection per amphora. */
export class SshAgentConnections implements AgentConnections {
  readonly #options: AgentConnectionsOptions
  readonly #connections = new Map<string, SshConnection>()
  /** Includes dropped connections whose socket is still open. */
  readonly #open = new Set<SshConnection>()
  #isStopped = false

  constructor(options: AgentConnectionsOptions) {
    this.#options = options
  }

  async request<V extends AgentVerb>(
    target: AgentTarget,
    body: RequestBody<V>,
    { timeoutMs = VERB_LIMIT_MS, connectTimeoutMs = CONNECT_LIMIT_MS }: AgentLimits = {},
  ): Promise<ResultOf[V]> {
    const until = performance.now() + timeoutMs
    for (let attempt = 1; ; attempt++) {
      if (this.#isStopped) throw new AgentUnreachable(target.amphoraId, 'stopped', 'The controller is stopping.')
      const { connection, isNew } = this.#connectionTo(target, connectTimeoutMs)
      try {
        return await connection.ask(body, until)
      } catch (error) {
        const wasDead = error instanceof AgentUnreachable && error.reason === 'connection-lost'
        const mayRepeat = wasDead && !isNew && attempt === 1 && !connection.isClosed
        if (!mayRepeat) throw error
      }
    }
  }

  async relay(target: AgentTarget, destination: RelayRequest, timeoutMs: number): Promise<Duplex> {
    const { connection } = this.#connectionTo(target, timeoutMs)
    const stream = await connection.openStream(RELAY_SOCKET, performance.now() + timeoutMs)
    stream.write(`${JSON.stringify(destination)}\n`)
    return stream
  }

  close(amphoraId: string): void {
    this.#connections.get(amphoraId)?.close()
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    for (const connection of this.#connections.values()) connection.drop()
    await Promise.all([...this.#open].map(({ gone }) => gone))
  }

  #connectionTo(target: AgentTarget, connectTimeoutMs: number): { connection: SshConnection; isNew: boolean } {
    const known = this.#connections.get(target.amphoraId)
    if (known?.leadsTo(target)) return { connection: known, isNew: false }
    known?.drop()
    return { connection: this.#connect(target, connectTimeoutMs), isNew: true }
  }

  #connect(target: AgentTarget, connectTimeoutMs: number): SshConnection {
    const { controllerKey, accessOf = async () => null, idleMs = IDLE_MS, log } = this.#options
    const onDropped = (dropped: SshConnection) => this.#forget(dropped)
    const connection = new SshConnection(target, { controllerKey, accessOf, connectTimeoutMs, idleMs, onDropped, log })
    this.#connections.set(target.amphoraId, connection)
    this.#open.add(connection)
    void connection.gone.then(() => {
      this.#open.delete(connection)
      connection.drop()
    })
    return connection
  }

  #forget(connection: SshConnection): void {
    const { amphoraId } = connection.target
    if (this.#connections.get(amphoraId) === connection) this.#connections.delete(amphoraId)
  }
}
