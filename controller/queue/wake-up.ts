import type pg from 'pg'
import { Servers } from '../database/servers.js'
import { serversOf } from '../database/url.js'
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
const PROBE_MS = 10_000
/** Longest wait for any answer. */
const ANSWER_MS = 5_000

/**
 * Listens on a PostgreSQL channel until stopped, and reconnects after restarts of the server. Resolves after
 * the first connection attempt, successful or not.
 */
export async function listenForWakeUps({ databaseUrl, channel, onWake, log }: WakeUpOptions): Promise<{
  stop: () => Promise<void>
}> {
  let client: pg.Client | null = null
  const servers = new Servers(serversOf(databaseUrl))
  let pause: NodeJS.Timeout | undefined
  let probe: NodeJS.Timeout | undefined
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
    try {
      const current = await servers.connect({
        application_name: 'krater wake-up',
        keepAlive: true,
        query_timeout: ANSWER_MS,
      })
      if (stopped) return void current.end().catch(() => undefined)
      client = current
      const onLost = (reason: unknown) => {
        if (client !== current) return
        client = null
        clearInterval(probe)
        current.end().catch(() => undefined)
        reconnectLater(reason)
      }
      current.on('error', onLost)
      current.on('end', () => onLost(new Error('the connection ended')))
      current.on('notification', ({ payload = '' }) => onWake(payload))
      // Nothing else is sent over it, so nothing else shows that its server has vanished.
      clearInterval(probe)
      if (servers.areSeveral) probe = setInterval(() => void current.query('SELECT 1').catch(onLost), PROBE_MS)
      await current.query(`LISTEN ${current.escapeIdentifier(channel)}`).catch(onLost)
      if (client !== current) return
      pauseMs = MIN_PAUSE_MS
      onWake(null)
    } catch (error) {
      reconnectLater(error)
    }
  }

  await connect()
  return {
    stop: async () => {
      stopped = true
      clearTimeout(pause)
      clearInterval(probe)
      const last = client
      client = null
      await last?.end().catch(() => undefined)
    },
  }
}
