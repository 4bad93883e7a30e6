import type { ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import type { Logger } from '../../../log/log.js'
import type { AgentVerb } from './answers.js'
import { type AgentChannel, type AgentTarget, openAgentChannel } from './channel.js'
import { Conversation, type RequestBody } from './conversation.js'
import { AgentUnreachable } from './errors.js'

export type SshConnectionOptions = {
  /** OpenSSH private key. */
  controllerKey: string
  connectTimeoutMs: number
  /** Unused for so long, it drops itself. */
  idleMs: number
  /** It takes no more requests. May be called several times. */
  onDropped: (connection: SshConnection) => void
  log: Logger
}

type Ready = { channel: AgentChannel; conversation: Conversation }

/** One SSH connection, with one channel to an agent that carries all requests. Connects when it is made. */
export class SshConnection {
  readonly target: AgentTarget
  /** Settles when no socket is left. */
  readonly gone: Promise<void>
  readonly #options: SshConnectionOptions
  readonly #giveUp = new AbortController()
  readonly #ready: Promise<Ready>
  #isDropped = false
  #isClosed = false
  #using = 0
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

  /** Whether it was dropped because somebody asked for it. */
  get isClosed(): boolean {
    return this.#isClosed
  }

  leadsTo({ host, port, hostKey }: AgentTarget): boolean {
    return this.target.host === host && this.target.port === port && this.target.hostKey.equals(hostKey)
  }

  /**
   * @param until milliseconds, as `performance.now()`: also for making the connection
   * @throws AgentUnreachable, AgentRefused
   */
  async ask<V extends AgentVerb>(body: RequestBody<V>, until: number): Promise<ResultOf[V]> {
    clearTimeout(this.#idle)
    this.#using++
    try {
      const { conversation } = await this.#readyBy(until)
      return await conversation.request(body, Math.max(1, until - performance.now()))
    } finally {
      this.#using--
      if (this.#using === 0 && !this.#isDropped) this.#dropWhenIdle()
    }
  }

  /** Its requests fail, and are not to be sent again. */
  close(): void {
    this.#isClosed = true
    this.drop()
  }

  /** Takes no more requests; those under way fail. May be repeated. */
  drop(): void {
    this.#isDropped = true
    this.#options.onDropped(this)
    clearTimeout(this.#idle)
    this.#giveUp.abort()
    this.#ready.then(
      ({ channel }) => channel.close(),
      () => undefined,
    )
  }

  async #open(): Promise<Ready> {
    const { controllerKey, connectTimeoutMs } = this.#options
    const { signal } = this.#giveUp
    const channel = await openAgentChannel(this.target, { controllerKey, connectTimeoutMs, signal })
    return { channel, conversation: new Conversation(channel.stream, this.target.amphoraId, () => this.drop()) }
  }

  /** A request may have less time than the one that began to connect. */
  #readyBy(until: number): Promise<Ready> {
    const { amphoraId, host } = this.target
    return new Promise((resolve, reject) => {
      const late = () => reject(new AgentUnreachable(amphoraId, 'no-answer', `No SSH connection to ${host} in time.`))
      const timer = setTimeout(late, Math.max(1, until - performance.now()))
      this.#ready.then(resolve, reject).finally(() => clearTimeout(timer))
    })
  }

  #dropWhenIdle(): void {
    this.#idle = setTimeout(() => this.drop(), this.#options.idleMs)
    this.#idle.unref()
  }
}
