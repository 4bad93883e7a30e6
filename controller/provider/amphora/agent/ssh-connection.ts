import type { Duplex } from 'node:stream'
import type { ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import type { Logger } from '../../../log/log.js'
import type { AgentVerb } from './answers.js'
import { type AgentChannel, type AgentTarget, openAgentChannel } from './channel.js'
import { Conversation, type RequestBody } from './conversation.js'
import { AgentUnreachable } from './errors.js'

export type SshConnectionOptions = {
  /** OpenSSH private key. */
  controllerKey: string
  accessOf: (amphoraId: string) => Promise<{ address: string; port: number; hostKey: Buffer } | null>
  connectTimeoutMs: number
  /** Idle time after which the connection drops itself. */
  idleMs: number
  /** Called when the connection takes no more requests; may be called several times. */
  onDropped: (connection: SshConnection) => void
  log: Logger
}

type Ready = { channel: AgentChannel; conversation: Conversation }

/** One SSH connection with one channel to an agent, which carries all requests. Connects on construction. */
export class SshConnection {
  readonly target: AgentTarget
  /** Resolves once the socket is closed. */
  readonly gone: Promise<void>
  readonly #options: SshConnectionOptions
  readonly #abandon = new AbortController()
  readonly #ready: Promise<Ready>
  #isDropped = false
  #isClosed = false
  #pending = 0
  #idle: NodeJS.Timeout | undefined

  constructor(target: AgentTarget, options: SshConnectionOptions) {
    this.target = target
    this.#options = options
    this.#ready = this.#open()
    this.gone = this.#ready.then(
      ({ channel }) => channel.closed,
      () => undefined,
    )
    this.#ready.then(
      () => options.log.debug({ amphoraId: target.amphoraId, host: target.host }, 'agent connected'),
      () => this.drop(),
    )
  }

  /** True after close(), but not after drop(). */
  get isClosed(): boolean {
    return this.#isClosed
  }

  leadsTo({ host, port, hostKey }: AgentTarget): boolean {
    return this.target.host === host && this.target.port === port && this.target.hostKey.equals(hostKey)
  }

  /**
   * @param until deadline in `performance.now()` milliseconds, connecting included
   * @throws AgentUnreachable, AgentRefused
   */
  async ask<V extends AgentVerb>(body: RequestBody<V>, until: number): Promise<ResultOf[V]> {
    clearTimeout(this.#idle)
    this.#pending++
    try {
      const { conversation } = await this.#readyBy(until)
      return await conversation.request(body, Math.max(1, until - performance.now()))
    } finally {
      this.#pending--
      if (this.#pending === 0 && !this.#isDropped) this.#dropWhenIdle()
    }
  }

  /**
   * Opens a stream to another of the agent's sockets.
   * @param until as for `ask`
   * @throws AgentUnreachable
   */
  async openStream(path: string, until: number): Promise<Duplex> {
    clearTimeout(this.#idle)
    this.#pending++
    try {
      const { channel } = await this.#readyBy(until)
      return await channel.open(path, Math.max(1, until - performance.now()))
    } finally {
      this.#pending--
      if (this.#pending === 0 && !this.#isDropped) this.#dropWhenIdle()
    }
  }

  /** Drops the connection for good: its pending requests fail and must not be resent. */
  close(): void {
    this.#isClosed = true
    this.drop()
  }

  /** Takes no more requests; pending ones fail. Safe to repeat. */
  drop(): void {
    this.#isDropped = true
    this.#options.onDropped(this)
    clearTimeout(this.#idle)
    this.#abandon.abort()
    this.#ready.then(
      ({ channel }) => channel.close(),
      () => undefined,
    )
  }

  async #open(): Promise<Ready> {
    const { controllerKey, accessOf, connectTimeoutMs } = this.#options
    const { signal } = this.#abandon
    const access = await accessOf(this.target.amphoraId)
    const target =
      access === null
        ? this.target
        : { ...this.target, host: access.address, port: access.port, hostKey: access.hostKey }
    const channel = await openAgentChannel(target, { controllerKey, connectTimeoutMs, signal })
    return { channel, conversation: new Conversation(channel.stream, this.target.amphoraId, () => this.drop()) }
  }

  /** A request's deadline may be earlier than that of the request that started connecting. */
  #readyBy(until: number): Promise<Ready> {
    const { amphoraId, host } = this.target
    return new Promise((resolve, reject) => {
      const expire = () =>
        reject(new AgentUnreachable(amphoraId, 'no-answer', `No SSH connection to ${host} before the deadline.`))
      const timer = setTimeout(expire, Math.max(1, until - performance.now()))
      this.#ready.then(resolve, reject).finally(() => clearTimeout(timer))
    })
  }

  #dropWhenIdle(): void {
    this.#idle = setTimeout(() => this.drop(), this.#options.idleMs)
    this.#idle.unref()
  }
}
