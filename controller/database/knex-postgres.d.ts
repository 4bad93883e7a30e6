/** knex's client for PostgreSQL; knex exports its type only. */
declare module 'knex/lib/dialects/postgres/index.js' {
  import { knex } from 'knex'

  const PostgresClient: typeof knex.Client
  export default PostgresClient
}
