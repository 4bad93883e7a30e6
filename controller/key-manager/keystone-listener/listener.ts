import { setTimeout as delay } from 'node:timers/promises'
import { type AsyncMessage, type Channel, Connection, type ConnectionOptions } from 'rabbitmq-client'
import type { Logger } from '../../log/log.js'
import { createHandler, type EraseProject, type Verdict } from './handle.js'
import type { KeystoneNotifications } from './options.js'
import { declareTopology } from './topology.js'
import type { Transport } from './transport-url.js'

export type ListenerOptions = {
  transport: Transport
  /** PEM text of the CA that signed the bus's certificate. Default: the system's CAs. Only with TLS. */
  certificateAuthority?: string
  settings: KeystoneNotifications
  eraseProject: EraseProject
  log: Logger
}

/** The connection counts as lost after twice this silence. */
const HEARTBEAT_SECONDS = 30
const MIN_PAUSE_MS = 500
const MAX_PAUSE_MS = 5_000

/**
 * Consumes the identity service's notifications until stopped; reconnects when the bus restarts. A message is
 * acknowledged after the erasure is committed: if this process dies before, the bus delivers it again. Any number
 * of listeners may share a queue.
 */
export function startKeystoneListener(options: ListenerOptions): { stop: () => Promise<void> } {
  const { settings, log, transport } = options
  const stopping = new AbortController()
  const handle = createHandler({ eraseProject: options.eraseProject, allowRequeue: settings.allow_requeue, log })
  const connection = new Connection(connectionOptions(options))
  connection.on('error', error => {
    if (!stopping.signal.aborted) log.warn({ err: error }, 'cannot connect to the message bus; retrying')
  })

  const follow = async () => {
    let pauseMs = MIN_PAUSE_MS
    while (!stopping.signal.aborted) {
      try {
        await consume(connection, settings, handle, stopping.signal, queue => {
          pauseMs = MIN_PAUSE_MS
          const bus = transport.hosts.map(({ host, port }) => `${host}:${port}`).join(', ')
          log.info({ bus, exchange: settings.control_exchange, queue }, 'connected; consuming notifications')
        })
      } catch (error) {
        if (!stopping.signal.aborted) log.warn({ err: error }, 'cannot consume notifications; retrying')
      }
      await delay(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
      pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)
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
 * Consumes messages until the channel ends or `stop` aborts, then waits for those in progress.
 * @throws AMQPError when the bus refuses or closes the channel
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
  const cancelled = new AbortController()
  const signal = AbortSignal.any([stop, cancelled.signal])
  const inProgress = new Set<Promise<void>>()
  const ended = channelEnd(channel, signal)
  try {
    await channel.basicQos({ prefetchCount: settings.thread_pool_size })
    const { consumerTag } = await channel.basicConsume({ queue }, message => {
      const done = handleMessage(channel, message, handle, signal).finally(() => inProgress.delete(done))
      inProgress.add(done)
    })
    onReady(queue)
    await ended
    if (channel.active) await channel.basicCancel(consumerTag)
  } finally {
    cancelled.abort()
    await Promise.all(inProgress)
    await channel.close()
  }
}

/** Handles and settles one message. If its channel is closed by then, the bus delivers the message again. */
async function handleMessage(
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

/**
 * Resolves when `signal` aborts.
 * @throws AMQPError when the bus closes the channel, deletes the queue or disconnects
 */
function channelEnd(channel: Channel, signal: AbortSignal): Promise<void> {
  const end = new Promise<void>((resolve, reject) => {
    channel.on('error', reject)
    channel.on('basic.cancel', (_tag, error) => reject(error))
    channel.on('close', () => reject(new Error('the channel was closed')))
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
  // Avoids an unhandled rejection when it ends before anyone awaits it.
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
    retryLow: MIN_PAUSE_MS,
    retryHigh: MAX_PAUSE_MS,
  }
}
