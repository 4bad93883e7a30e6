import type { ResultOf } from '../../../../amphora-agent/protocol/messages.js'
import type { Logger } from '../../../log/log.js'
import type { AgentVerb } from './answers.js'
import { type AgentChannel, type AgentTarget, openAgentChannel } from './channel.js'
import { type Conversation, converse, type RequestBody } from './conversation.js'
import { AgentRefused, AgentUnreachable } from './errors.js'

export type { AgentTarget, AgentVerb, RequestBody }
export { AgentRefused, AgentUnreachable }

/** In milliseconds: for the whole request, and within that for making a connection when there is none (at most 10 s when not given). */
export type AgentLimits = { timeoutMs?: number; connectTimeoutMs?: number }

export type AgentConnections = {
  /**
   * Asks the agent of an amphora; connects when there is no connection. A request whose connection turns out to be dead is sent once more over a new one:
   * every verb may be repeated.
   * @throws AgentUnreachable, AgentRefused
   */
  request: <V extends AgentVerb>(
    target: AgentTarget,
    body: RequestBody<V>,
    limits?: AgentLimits,
  ) => Promise<ResultOf[V]>
  /** Drops the connection of an amphora that is gone. Requests under way fail. */
  close: (amphoraId: string) => void
  /** Drops all; afterwards no socket and no timer is left, and every request fails. */
  stop: () => Promise<void>
}

export type AgentConnectionsOptions = {
  /** OpenSSH private key. */
  controllerKey: string
  log: Logger
  /** An unused connection is dropped after this time. */
  idleMs?: number
}

const CONNECT_LIMIT_MS = 10_000
const VERB_LIMIT_MS = 60_000

type Connection = {
  target: AgentTarget
  giveUp: AbortController
  ready: Promise<{ channel: AgentChannel; conversation: Conversation }>
  /** Settles when no socket is left. */
  gone: Promise<void>
  using: number
  idle?: NodeJS.Timeout
}

/** One persistent SSH connection per amphora, with one channel to the agent that carries all requests. */
export function createAgentConnections(options: AgentConnectionsOptions): AgentConnections {
  const { controllerKey, log, idleMs = 300_000 } = options
  const connections = new Map<string, Connection>()
  /** Also those that were dropped and whose socket is not closed yet. */
  const living = new Set<Connection>()
  let stopped = false

  function drop(connection: Connection): void {
    const { amphoraId } = connection.target
    if (connections.get(amphoraId) === connection) connections.delete(amphoraId)
    clearTimeout(connection.idle)
    connection.giveUp.abort()
    connection.ready.then(
      ({ channel }) => channel.close(),
      () => undefined,
    )
  }

  function connect(target: AgentTarget, connectTimeoutMs: number): Connection {
    const giveUp = new AbortController()
    const ready = openAgentChannel(target, { controllerKey, connectTimeoutMs, signal: giveUp.signal }).then(
      channel => ({
        channel,
        conversation: converse(channel.stream, target.amphoraId, () => drop(connection)),
      }),
    )
    const gone = ready.then(
      ({ channel }) => channel.closed,
      () => undefined,
    )
    const connection: Connection = { target, giveUp, ready, gone, using: 0 }
    connections.set(target.amphoraId, connection)
    ready.then(
      () => log.debug({ amphoraId: target.amphoraId, host: target.host }, 'agent connected'),
      () => drop(connection),
    )
    living.add(connection)
    void gone.then(() => {
      living.delete(connection)
      drop(connection)
    })
    return connection
  }

  /** The connection to use, and whether it stood before. */
  function connectionTo(target: AgentTarget, connectTimeoutMs: number): { connection: Connection; isNew: boolean } {
    const known = connections.get(target.amphoraId)
    if (known !== undefined && isSame(known.target, target)) return { connection: known, isNew: false }
    if (known !== undefined) drop(known)
    return { connection: connect(target, connectTimeoutMs), isNew: true }
  }

  async function ask<V extends AgentVerb>(
    connection: Connection,
    body: RequestBody<V>,
    until: number,
  ): Promise<ResultOf[V]> {
    clearTimeout(connection.idle)
    connection.using++
    try {
      const { conversation } = await readyBy(connection, until)
      return await conversation.request(body, Math.max(1, until - performance.now()))
    } finally {
      connection.using--
      if (connection.using === 0 && connections.get(connection.target.amphoraId) === connection) {
        connection.idle = setTimeout(() => drop(connection), idleMs)
        connection.idle.unref()
      }
    }
  }

  return {
    async request(target, body, { timeoutMs = VERB_LIMIT_MS, connectTimeoutMs = CONNECT_LIMIT_MS } = {}) {
      const until = performance.now() + timeoutMs
      for (let attempt = 1; ; attempt++) {
        if (stopped) throw new AgentUnreachable(target.amphoraId, 'stopped', 'The connections were stopped.')
        const left = Math.max(1, until - performance.now())
        const { connection, isNew } = connectionTo(target, Math.min(left, connectTimeoutMs))
        try {
          return await ask(connection, body, until)
        } catch (error) {
          const wasDead = error instanceof AgentUnreachable && error.reason === 'connection-lost'
          const mayRepeat = wasDead && !isNew && attempt === 1 && connection.giveUp.signal.reason !== CLOSED
          if (!mayRepeat) throw error
        }
      }
    },

    close: amphoraId => {
      const connection = connections.get(amphoraId)
      if (connection === undefined) return
      connection.giveUp.abort(CLOSED)
      drop(connection)
    },

    stop: async () => {
      stopped = true
      for (const connection of connections.values()) drop(connection)
      await Promise.all([...living].map(({ gone }) => gone))
    },
  }
}

/** A request may have less time than the one that began to connect. */
function readyBy(connection: Connection, until: number): Connection['ready'] {
  const { amphoraId, host } = connection.target
  return new Promise((resolve, reject) => {
    const late = () => reject(new AgentUnreachable(amphoraId, 'no-answer', `No SSH connection to ${host} in time.`))
    const timer = setTimeout(late, Math.max(1, until - performance.now()))
    connection.ready.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/** Why a connection was given up, when it was on request. */
const CLOSED = 'closed'

const isSame = (one: AgentTarget, other: AgentTarget) =>
  one.host === other.host && one.port === other.port && one.hostKey.equals(other.hostKey)
