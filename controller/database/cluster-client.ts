import PostgresClient from 'knex/lib/dialects/postgres/index.js'
import type pg from 'pg'
import { READ_ONLY } from './database-away.js'
import { Servers } from './servers.js'
import { sqlState } from './transaction.js'
import { serversOf } from './url.js'

/** pg's message when a query takes longer than `query_timeout`. */
const NO_ANSWER = 'Query read timeout'

type Settings = pg.ClientConfig & { connectionString: string }

/**
 * knex's client, for databases that move between servers: each new connection goes to a server that is right, and one that
 * turns out to lead to a wrong one is not used again. It overrides only what knex's types make public.
 */
export class ClusterClient extends PostgresClient {
  /** Made when they are first needed: knex's constructor calls nothing of these, but runs before fields exist. */
  #servers: Servers | null = null
  readonly #open = new Set<pg.Client>()
  readonly #unusable = new WeakSet<pg.Client>()

  override async acquireRawConnection(): Promise<pg.Client> {
    const { connectionString, ...config } = this.connectionSettings as Settings
    this.#servers ??= new Servers(serversOf(connectionString))
    const client = await this.#servers.connect(config)
    const onEnd = () => this.#unusable.add(client)
    client.on('error', onEnd).on('end', onEnd)
    this.#open.add(client)
    return client
  }

  override async destroyRawConnection(client: pg.Client): Promise<void> {
    this.#open.delete(client)
    await client.end()
  }

  override async validateConnection(client: pg.Client): Promise<boolean> {
    return !this.#unusable.has(client)
  }

  override async query(client: pg.Client, statement: unknown): Promise<unknown> {
    try {
      return await super.query(client, statement)
    } catch (error) {
      // The server has become a standby, or was set to read only.
      if (sqlState(error) === READ_ONLY) this.#unusable.add(client)
      // It has vanished: its other connections do not answer either.
      if (error instanceof Error && error.message.endsWith(NO_ANSWER)) {
        for (const one of this.#open) if (one.host === client.host && one.port === client.port) this.#unusable.add(one)
      }
      throw error
    }
  }
}
