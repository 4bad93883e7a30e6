import pg from 'pg'
import { sqlState } from './transaction.js'
import { type DatabaseServers, isBehindSocket } from './url.js'

/** A server answered, but it is not the primary: a standby, set to read only, or one that another has replaced. */
export class NotPrimary extends Error {}

/** A server elsewhere that does not answer has vanished; one behind a socket only lacks processor time. */
const CONNECT_MS = 5_000
export const SOCKET_CONNECT_MS = 60_000
/** If one server has not answered after this time, the next one is asked too. */
const STAGGER_MS = 1_000

/**
 * What this process knows of one cluster, over all its pools: the newest timeline of a primary, and its connections with
 * the timelines of their servers. PostgreSQL counts timelines up at each promotion, so a primary of an older one has been
 * replaced, even if it still takes writes.
 */
type Cluster = { newest: number; open: Map<pg.Client, number> }

const clusters = new Map<string, Cluster>()

function clusterOf(name: string): Cluster {
  const cluster = clusters.get(name) ?? { newest: 0, open: new Map() }
  clusters.set(name, cluster)
  return cluster
}

/** Connects to the servers of one database. */
export class Servers {
  readonly #servers: DatabaseServers
  readonly #cluster: Cluster
  /** The one that was right the last time is asked first. */
  #first = 0
  #isLooking = false

  constructor(servers: DatabaseServers) {
    this.#servers = servers
    this.#cluster = clusterOf(servers.name)
  }

  get areSeveral(): boolean {
    return this.#servers.urls.length > 1
  }

  /**
   * Asks one after another, without waiting long for those that do not answer. The first that is right wins.
   * @param config options of pg, without the server
   * @throws once none is right: that one has no free connection, else that one takes no writes, else why the first cannot
   *   be reached
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
          if (failures.length === urls.length) reject(mostTelling(failures))
          else askNext()
        }
        this.#connectTo(urls[at] ?? '', config).then(onAnswer, onFailure)
      }
      askNext()
    })
  }

  /**
   * Looks whether another server has become the primary. If so, the connections of this process to the former one end,
   * with the statements that wait there: its host has vanished, or it waits for standbys that left it. Never fails.
   */
  async lookForPrimary(config: pg.ClientConfig): Promise<void> {
    const { urls, mustBePrimary } = this.#servers
    if (!mustBePrimary || urls.length === 1 || this.#isLooking) return
    this.#isLooking = true
    const look = async (url: string) => {
      const client = await this.#connectTo(url, { ...config, query_timeout: CONNECT_MS })
      await client.end()
    }
    await Promise.allSettled(urls.map(look))
    this.#isLooking = false
  }

  /** Whether a connection leads to the newest primary that this process knows. */
  isCurrent(client: pg.Client): boolean {
    const { newest, open } = this.#cluster
    return open.get(client) === newest
  }

  /** The connections of this process to the server of this one. */
  sharingServer(client: pg.Client): pg.Client[] {
    return [...this.#cluster.open.keys()].filter(({ host, port }) => host === client.host && port === client.port)
  }

  async #connectTo(connectionString: string, config: pg.ClientConfig): Promise<pg.Client> {
    const connectionTimeoutMillis = isBehindSocket(connectionString) ? SOCKET_CONNECT_MS : CONNECT_MS
    const client = new pg.Client({ ...config, connectionString, connectionTimeoutMillis })
    // Without a listener, an error after a failed attempt would end the process.
    client.on('error', () => undefined)
    try {
      await client.connect()
      this.#admit(client, this.#servers.mustBePrimary ? await timelineOfPrimary(client) : 0)
      return client
    } catch (error) {
      void client.end().catch(() => undefined)
      throw error
    }
  }

  /** @throws NotPrimary if its server has been replaced */
  #admit(client: pg.Client, timeline: number): void {
    const { newest, open } = this.#cluster
    if (timeline < newest) throw new NotPrimary(`${client.host}:${client.port} has been replaced as the primary`)
    this.#cluster.newest = timeline
    // end() would wait for the goodbye of a server that has vanished.
    for (const [former, itsTimeline] of open) if (itsTimeline < timeline) former.connection.stream.destroy()
    open.set(client, timeline)
    client.once('end', () => open.delete(client))
  }
}

/** SQLSTATE. */
const TOO_MANY_CONNECTIONS = '53300'

/** The server without a free connection may be the primary; the others only say that they are none. */
const mostTelling = (failures: readonly unknown[]): unknown =>
  failures.find(error => sqlState(error) === TOO_MANY_CONNECTIONS) ??
  failures.find(error => error instanceof NotPrimary) ??
  failures[0]

/** SQLSTATEs undefined_function, feature_not_supported, insufficient_privilege: databases that only resemble PostgreSQL. */
const HAS_NO_TIMELINE = ['42883', '0A000', '42501']

/** @returns 0 if the server knows no timelines @throws NotPrimary */
async function timelineOfPrimary(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ transaction_read_only: string }>('SHOW transaction_read_only')
  if (rows[0]?.transaction_read_only !== 'off') throw new NotPrimary(`${client.host}:${client.port} takes no writes`)
  try {
    const answer = await client.query<{ timeline: string }>(
      'SELECT left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) AS timeline',
    )
    return Number.parseInt(answer.rows[0]?.timeline ?? '0', 16)
  } catch (error) {
    if (HAS_NO_TIMELINE.includes(sqlState(error))) return 0
    throw error
  }
}
