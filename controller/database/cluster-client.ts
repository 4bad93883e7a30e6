import PostgresClient from 'knex/lib/dialects/postgres/index.js'
import type pg from 'pg'
import { READ_ONLY } from './database-away.js'
import { Servers } from './servers.js'
import { sqlState } from './transaction.js'
import { serversOf } from './url.js'

/** pg's message when a query takes longer than `query_timeout`. */
const NO_ANSWER = 'Query read timeout'

/** A statement that takes as long may wait for a server that is the primary no more. */
const LATE_MS = 1_500

type Settings = pg.ClientConfig & { connectionString: string }

/** How each connection was made. Not in fields: knex's client of a transaction shares only the methods. */
const origins = new WeakMap<pg.Client, { servers: Servers; config: pg.ClientConfig }>()
const unusable = new WeakSet<pg.Client>()

/**
 * knex's client, for databases that move between servers: each new connection goes to a server that is right, and one that
 * turns out to lead to a wrong one is not used again. It overrides only what knex's types make public.
 */
export class ClusterClient extends PostgresClient {
  /** Made when they are first needed: knex's constructor calls nothing of these, but runs before fields exist. */
  #servers: Servers | null = null

  override async acquireRawConnection(): Promise<pg.Client> {
    const { connectionString, ...config } = this.connectionSettings as Settings
    this.#servers ??= new Servers(serversOf(connectionString))
    const client = await this.#servers.connect(config)
    const onEnd = () => unusable.add(client)
    client.on('error', onEnd).on('end', onEnd)
    origins.set(client, { servers: this.#servers, config })
    return client
  }

  override async destroyRawConnection(client: pg.Client): Promise<void> {
    await client.end()
  }

  override async validateConnection(client: pg.Client): Promise<boolean> {
    return !unusable.has(client) && origins.get(client)?.servers.isCurrent(client) === true
  }

  override async query(client: pg.Client, statement: unknown): Promise<unknown> {
    const origin = origins.get(client)
    const late = origin?.servers.areSeveral
      ? setInterval(() => void origin.servers.lookForPrimary(origin.config), LATE_MS)
      : undefined
    try {
      return await super.query(client, statement)
    } catch (error) {
      // The server has become a standby, or was set to read only.
      if (sqlState(error) === READ_ONLY) unusable.add(client)
      // It has vanished: its other connections do not answer either.
      if (error instanceof Error && error.message.endsWith(NO_ANSWER)) {
        for (const one of origin?.servers.sharingServer(client) ?? [client]) unusable.add(one)
      }
      throw error
    } finally {
      clearInterval(late)
    }
  }
}
