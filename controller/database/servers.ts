import pg from 'pg'
import type { DatabaseServers } from './url.js'

/** A server answered, but it takes no writes: it is a standby, or was set to read only. */
export class NotPrimary extends Error {}

/** The time for one server. With several, a dead one must not use up the time for all. */
const CONNECT_MS = { alone: 5_000, amongOthers: 2_500 }

/** Connects to the servers of one database. */
export class Servers {
  readonly #servers: DatabaseServers
  /** The one that was right the last time is asked first. */
  #first = 0

  constructor(servers: DatabaseServers) {
    this.#servers = servers
  }

  get areSeveral(): boolean {
    return this.#servers.urls.length > 1
  }

  /**
   * Asks one after another.
   * @param config options of pg, without the server
   * @throws what the server said that was closest to answering, once none is right
   */
  async connect(config: pg.ClientConfig): Promise<pg.Client> {
    const { urls } = this.#servers
    const failures: unknown[] = []
    for (const step of urls.keys()) {
      const at = (this.#first + step) % urls.length
      try {
        const client = await this.#connectTo(urls[at] ?? '', config)
        this.#first = at
        return client
      } catch (error) {
        failures.push(error)
      }
    }
    throw failures.find(error => error instanceof NotPrimary) ?? failures[0]
  }

  async #connectTo(connectionString: string, config: pg.ClientConfig): Promise<pg.Client> {
    const connectionTimeoutMillis = this.areSeveral ? CONNECT_MS.amongOthers : CONNECT_MS.alone
    const client = new pg.Client({ ...config, connectionString, connectionTimeoutMillis })
    // Without a listener, an error after a failed attempt would end the process.
    client.on('error', () => undefined)
    try {
      await client.connect()
      if (this.#servers.mustBePrimary) await requirePrimary(client)
      return client
    } catch (error) {
      void client.end().catch(() => undefined)
      throw error
    }
  }
}

async function requirePrimary(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ transaction_read_only: string }>('SHOW transaction_read_only')
  if (rows[0]?.transaction_read_only !== 'off') throw new NotPrimary(`${client.host}:${client.port} takes no writes`)
}
