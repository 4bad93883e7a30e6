import type { Row, Tables } from './columns.js'
import type { OvsdbConnection } from './connection.js'
import { DatabaseCopy } from './copy.js'
import { MethodRefused, OvsdbUnreachable } from './errors.js'

const SERVER = '_Server'
const TABLES = {
  Database: { name: 'text', model: 'text', connected: 'boolean', leader: 'boolean' },
} as const satisfies Tables

/** What a server says of the databases that it has. */
export type ServerState = {
  /** Why this server does not serve the database now; null if it does. */
  refusal: (database: string) => string | null
  /** Takes a notification. @returns whether it was of this state */
  take: (method: string, params: readonly unknown[]) => boolean
}

/**
 * Follows what a server says of itself: whether it is part of its cluster, and the leader. Servers older than OVS 2.10
 * say nothing, and always serve.
 * @throws OvsdbUnreachable, OvsdbProtocolError
 */
export async function followServerState(connection: OvsdbConnection): Promise<ServerState> {
  const copy = new DatabaseCopy(TABLES)
  const id = ['krater', SERVER]
  const requests = { Database: [{ columns: Object.keys(TABLES.Database) }] }
  const contents = await connection.request('monitor_cond', [SERVER, id, requests]).catch((error: unknown) => {
    if (error instanceof MethodRefused) return null
    throw error
  })
  if (contents === null) return { refusal: () => null, take: () => false }
  copy.replace('update2', contents)
  return {
    refusal: database =>
      refusalOf(
        [...copy.rows('Database').values()].find(row => row['name'] === database),
        database,
      ),
    take: (method, [monitor, update]) => {
      if (method !== 'update2' || JSON.stringify(monitor) !== JSON.stringify(id)) return false
      copy.apply('update2', update)
      return true
    },
  }
}

function refusalOf(row: Row | undefined, database: string): string | null {
  if (row === undefined) return `it has no database ${database}`
  if (row['connected'] !== true) return 'it has lost its cluster'
  return row['model'] === 'clustered' && row['leader'] !== true ? 'it is not the leader of its cluster' : null
}

/** The server stands, but another one of its cluster is to be asked. */
export class NotServing extends OvsdbUnreachable {}
