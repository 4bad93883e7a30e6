import pg from 'pg'
import { type DatabaseServers, isBehindSocket } from './url.js'

/** A server answered, but it takes no writes: it is a standby, or was set to read only. */
export class NotPrimary extends Error {}

/** A server elsewhere that does not answer has vanished; one behind a socket only lacks processor time. */
const CONNECT_MS = 5_000
export const SOCKET_CONNECT_MS = 60_000
/** If one server has not answered after this time, the next one is asked too. */
const STAGGER_MS = 1_000

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
   * Asks one after another, without waiting long for those that do not answer. The first that is right wins.
   * @param config options of pg, without the server
   * @throws once none is right: that one takes no writes, else why the first cannot be reached
   */
  connect(config: pg.ClientConfig): Promise<pg.Client> {
    const { urls } = this.#servers
    const order = [...urls.keys()].map(step => (this.#first + step) % urls.length)
    const failures: unknown[] = []
    let isSettled = false
    return new Promise((resolve, reject) => {
      const askNext = () => {
        const at = order.shift()
        if (at === undefined || isSettled) return
        const timer = setTimeout(askNext, STAGGER_MS)
        const onAnswer = (client: pg.Client) => {
          clearTimeout(timer)
          if (isSettled) return void client.end().catch(() => undefined)
          isSettled = true
          this.#first = at
          resolve(client)
        }
        const onFailure = (error: unknown) => {
          clearTimeout(timer)
          failures.push(error)
          if (failures.length === urls.length) reject(failures.find(one => one instanceof NotPrimary) ?? failures[0])
          else askNext()
        }
        this.#connectTo(urls[at] ?? '', config).then(onAnswer, onFailure)
      }
      askNext()
    })
  }

  async #connectTo(connectionString: string, config: pg.ClientConfig): Promise<pg.Client> {
    const connectionTimeoutMillis = isBehindSocket(connectionString) ? SOCKET_CONNECT_MS : CONNECT_MS
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
