import { setTimeout as delay } from 'node:timers/promises'
import { type AsyncMessage, type Channel, Connection, type ConnectionOptions } from 'rabbitmq-client'
import type { Logger } from '../../log/log.js'
import { createHandler, type EraseProject, type Verdict } from './handle.js'
import type { KeystoneNotifications } from './options.js'
import { declareTopology } from './topology.js'
import type { Transport } from './transport-url.js'

export type ListenerOptions = {
  transport: Transport
  /** PEM text of the authority that vouches for the bus; the system's when not given. Only with TLS. */
  certificateAuthority?: string
  settings: KeystoneNotifications
  eraseProject: EraseProject
  log: Logger
}

/** The other side counts as gone after twice this silence. */
const HEARTBEAT_SECONDS = 30
const SHORTEST_PAUSE_MS = 500
const LONGEST_PAUSE_MS = 5_000

/**
 * Follows the identity service's notifications until stopped, through restarts of the bus. A message is acknowledged once the erasure is
 * committed: when this process dies before, the bus delivers it again. Any number of listeners may share a queue.
 */
export function startKeystoneListener(options: ListenerOptions): { stop: () => Promise<void> } {
  const { settings, log, transport } = options
  const stopping = new AbortController()
  const handle = createHandler({ eraseProject: options.eraseProject, allowRequeue: settings.allow_requeue, log })
  const connection = new Connection(connectionOptions(options))
  connection.on('error', error => {
    if (!stopping.signal.aborted) log.warn({ err: error }, 'no connection to the message bus; trying again')
  })

  const follow = async () => {
    let pauseMs = SHORTEST_PAUSE_MS
    while (!stopping.signal.aborted) {
      try {
        await consume(connection, settings, handle, stopping.signal, queue => {
          pauseMs = SHORTEST_PAUSE_MS
          const bus = transport.hosts.map(({ host, port }) => `${host}:${port}`).join(', ')
          log.info({ bus, exchange: settings.control_exchange, queue }, 'connected: following notifications')
        })
      } catch (error) {
        if (!stopping.signal.aborted) log.warn({ err: error }, 'not following notifications; trying again')
      }
      await delay(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
      pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)
    }
  }
  const following = follow()

  return {
    stop: async () => {
      stopping.abort()
      const isConnected = connection.ready
      if (!isConnected) connection.unsafeDestroy()
      await following
      if (isConnected) await connection.close()
    },
  }
}

/**
 * Takes messages from the queue until the channel ends or `stop` says so; what is under way then is finished first.
 * @throws AMQPError when the bus refuses, or the channel ends by itself
 */
async function consume(
  connection: Connection,
  settings: KeystoneNotifications,
  handle: (body: unknown, signal: AbortSignal) => Promise<Verdict>,
  stop: AbortSignal,
  onReady: (queue: string) => void,
): Promise<void> {
  const queue = await declareTopology(connection, settings)
  const channel = await connection.acquire({ emitErrorsFromChannel: true })
  const over = new AbortController()
  const signal = AbortSignal.any([stop, over.signal])
  const underWay = new Set<Promise<void>>()
  const ended = endOf(channel, signal)
  try {
    await channel.basicQos({ prefetchCount: settings.thread_pool_size })
    const { consumerTag } = await channel.basicConsume({ queue }, message => {
      const done = take(channel, message, handle, signal).finally(() => underWay.delete(done))
      underWay.add(done)
    })
    onReady(queue)
    await ended
    if (channel.active) await channel.basicCancel(consumerTag)
  } finally {
    over.abort()
    await Promise.all(underWay)
    await channel.close()
  }
}

/** Handles one message, and tells the bus on the channel that brought it; when that is gone, the bus delivers the message again. */
async function take(
  channel: Channel,
  { body, deliveryTag }: AsyncMessage,
  handle: (body: unknown, signal: AbortSignal) => Promise<Verdict>,
  signal: AbortSignal,
): Promise<void> {
  const verdict = await handle(body, signal)
  if (!channel.active) return
  if (verdict === 'acknowledge') channel.basicAck({ deliveryTag })
  else channel.basicNack({ deliveryTag, requeue: true })
}

/** Resolves when `signal` says so. @throws AMQPError when the bus closes the channel, takes the queue away, or is gone itself */
function endOf(channel: Channel, signal: AbortSignal): Promise<void> {
  const end = new Promise<void>((resolve, reject) => {
    channel.on('error', reject)
    channel.on('basic.cancel', (_tag, error) => reject(error))
    channel.on('close', () => reject(new Error('the channel was closed')))
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
  // It may end before it is waited for.
  end.catch(() => undefined)
  return end
}

function connectionOptions({ transport, certificateAuthority }: ListenerOptions): ConnectionOptions {
  const [first] = transport.hosts
  return {
    ...(transport.hosts.length === 1
      ? { hostname: first?.host ?? '', port: first?.port ?? 0 }
      : { hosts: transport.hosts.map(({ host, port }) => `${host}:${port}`) }),
    username: transport.username,
    password: transport.password,
    vhost: transport.virtualHost,
    ...(transport.tls ? { tls: certificateAuthority === undefined ? {} : { ca: certificateAuthority } } : {}),
    connectionName: 'krater keystone-listener',
    heartbeat: HEARTBEAT_SECONDS,
    retryLow: SHORTEST_PAUSE_MS,
    retryHigh: LONGEST_PAUSE_MS,
  }
}
