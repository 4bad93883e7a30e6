import pg from 'pg'
import type { Logger } from '../log/log.js'

export type WakeUpOptions = {
  /** postgres:// URL; LISTEN holds a connection of its own. */
  databaseUrl: string
  channel: string
  /** Called with the payload of every notification, and with null after every (re)connection, since some may have been missed. */
  onWake: (payload: string | null) => void
  log: Logger
}

const SHORTEST_PAUSE_MS = 100
const LONGEST_PAUSE_MS = 2_000

/**
 * Listens on a PostgreSQL channel until stopped, through restarts of the server. Resolves after the first connection attempt, whether it
 * worked or not.
 */
export async function listenForWakeUps({ databaseUrl, channel, onWake, log }: WakeUpOptions): Promise<{
  stop: () => Promise<void>
}> {
  let client: pg.Client | null = null
  let pause: NodeJS.Timeout | undefined
  let pauseMs = SHORTEST_PAUSE_MS
  let stopped = false

  const reconnectLater = (reason: unknown) => {
    if (stopped || pause !== undefined) return
    log.warn({ err: reason, pauseMs }, 'not listening for wake-ups; the sweep goes on')
    pause = setTimeout(() => {
      pause = undefined
      void connect()
    }, pauseMs)
    pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)
  }

  const connect = async () => {
    const mine = new pg.Client({
      connectionString: databaseUrl,
      application_name: 'krater wake-up',
      connectionTimeoutMillis: 5_000,
      keepAlive: true,
    })
    client = mine
    const lost = (reason: unknown) => {
      if (client !== mine) return
      client = null
      mine.end().catch(() => undefined)
      reconnectLater(reason)
    }
    mine.on('error', lost)
    mine.on('end', () => lost(new Error('the connection ended')))
    mine.on('notification', ({ payload = '' }) => onWake(payload))
    try {
      await mine.connect()
      await mine.query(`LISTEN ${mine.escapeIdentifier(channel)}`)
      pauseMs = SHORTEST_PAUSE_MS
      if (!stopped) onWake(null)
    } catch (error) {
      lost(error)
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
