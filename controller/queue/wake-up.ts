import pg from 'pg'
import type { Logger } from '../log/log.js'

export type WakeUpOptions = {
  /** postgres:// URL. LISTEN uses a dedicated connection. */
  databaseUrl: string
  channel: string
  /**
   * Called with the payload of every notification, and with null after every (re)connection, because some may
   * have been missed.
   */
  onWake: (payload: string | null) => void
  log: Logger
}

const MIN_PAUSE_MS = 100
const MAX_PAUSE_MS = 2_000

/**
 * Listens on a PostgreSQL channel until stopped, and reconnects after restarts of the server. Resolves after
 * the first connection attempt, successful or not.
 */
export async function listenForWakeUps({ databaseUrl, channel, onWake, log }: WakeUpOptions): Promise<{
  stop: () => Promise<void>
}> {
  let client: pg.Client | null = null
  let pause: NodeJS.Timeout | undefined
  let pauseMs = MIN_PAUSE_MS
  let stopped = false

  const reconnectLater = (reason: unknown) => {
    if (stopped || pause !== undefined) return
    log.warn({ err: reason, pauseMs }, 'not listening for wake-ups; relying on the sweep')
    pause = setTimeout(() => {
      pause = undefined
      void connect()
    }, pauseMs)
    pauseMs = Math.min(pauseMs * 2, MAX_PAUSE_MS)
  }

  const connect = async () => {
    const current = createClient(databaseUrl)
    client = current
    const onLost = (reason: unknown) => {
      if (client !== current) return
      client = null
      current.end().catch(() => undefined)
      reconnectLater(reason)
    }
    current.on('error', onLost)
    current.on('end', () => onLost(new Error('the connection ended')))
    current.on('notification', ({ payload = '' }) => onWake(payload))
    try {
      await current.connect()
      await current.query(`LISTEN ${current.escapeIdentifier(channel)}`)
      pauseMs = MIN_PAUSE_MS
      if (!stopped) onWake(null)
    } catch (error) {
      onLost(error)
    }
  }

  await connect()
  return {
    stop: async () => {
      stopped = true
      clearTimeout(pause)
      const last = client
      client = null
      await last?.end().catch(() => undefined)
    },
  }
}

const createClient = (databaseUrl: string): pg.Client =>
  new pg.Client({
    connectionString: databaseUrl,
    application_name: 'krater wake-up',
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
  })
