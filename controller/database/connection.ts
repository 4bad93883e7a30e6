import createKnex, { type Knex } from 'knex'
import pg from 'pg'
import type { Logger } from '../log/log.js'
import { ClusterClient } from './cluster-client.js'
import { SOCKET_CONNECT_MS } from './servers.js'
import { isBehindSocket } from './url.js'

// Generations, fences and counters are bigint columns; all stay far below 2^53, so plain numbers are exact.
pg.types.setTypeParser(pg.types.builtins.INT8, Number)

export type Database = Knex

export type ConnectionOptions = {
  /**
   * `postgres://role:password@host:port/database`, or with `?host=/socket/directory` for a unix socket. For a cluster,
   * several hosts with commas between, and `?target_session_attrs=read-write`: then connections are those of the primary.
   */
  url: string
  /** Shown in pg_stat_activity. */
  applicationName: string
  poolSize?: number
  /** Whether statements may take longer than those of requests, as migrations do. */
  isPatient?: boolean
  /** For knex's messages. Optional, because failures of queries are thrown anyway. */
  log?: Logger
}

/**
 * What requests read is in memory, where a page found by an index costs little more than the next page of the table.
 * With PostgreSQL's default of 4, a statement prepared while its table is small scans the whole table until the next
 * ANALYZE. Measured in a table that a thousand batches of members have grown, with 4 and with 1.1: marking 50 members
 * 2.5 ms and 1.1 ms, claiming one load balancer 1.0 ms and 0.6 ms.
 */
const PLANNER_OPTIONS = '-c random_page_cost=1.1'

const STATEMENT_MS = 30_000

/** A pool of connections for one service's role; the role's search_path is that service's schema. */
export function connect({ url, applicationName, poolSize = 10, isPatient, log }: ConnectionOptions): Database {
  return createKnex({
    client: ClusterClient,
    connection: {
      connectionString: url,
      application_name: applicationName,
      statement_timeout: STATEMENT_MS,
      // A server that has vanished answers nothing, not even that the time is over.
      ...(isPatient !== true && { query_timeout: STATEMENT_MS + 5_000 }),
      idle_in_transaction_session_timeout: 60_000,
      keepAlive: true,
      options: PLANNER_OPTIONS,
    },
    pool: { min: 0, max: poolSize, idleTimeoutMillis: 30_000 },
    acquireConnectionTimeout: isBehindSocket(url) ? SOCKET_CONNECT_MS : 10_000,
    // An error shows the statement without its bindings, which may hold a password hash or a tenant's data.
    compileSqlOnError: false,
    log: {
      debug: message => log?.debug(message),
      warn: message => log?.warn(message),
      error: message => log?.error(message),
      deprecate: message => log?.warn(message),
    },
  })
}
