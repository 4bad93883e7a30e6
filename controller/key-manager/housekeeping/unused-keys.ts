import type { Knex } from 'knex'
import { execute, many } from '../../database/query.js'
import { sql, trusted } from '../../database/sql.js'

const LIVE_IN_PROJECT = ['secret', 'container', 'secret_order'].map(
  table => `SELECT FROM ${table} o WHERE o.project_id = k.project_id AND o.deleted_at IS NULL`,
)
const UNDER_KEY = [
  'secret',
  'secret_order',
  'certificate_authority',
  'acme_binding_key',
  'pending_certificate',
  'acme_client_account',
].map(table => `SELECT FROM ${table} o WHERE o.project_key_id = k.id`)

/** Keys (alias k) of projects without objects. Excludes the service's own keys. */
const UNUSED = trusted(
  `k.project_id <> '' AND ${[...LIVE_IN_PROJECT, ...UNDER_KEY].map(query => `NOT EXISTS (${query})`).join(' AND ')}`,
)

/**
 * Removes the keys of projects without objects. A project that stores something again gets a new key. Locks each
 * key and then checks it again, so that nothing is stored under it in between.
 * @returns how many it removed
 */
export async function removeUnusedProjectKeys(trx: Knex.Transaction): Promise<number> {
  const held = await many(
    trx,
    sql<{ id: string }>`SELECT k.id FROM project_key k WHERE ${UNUSED} FOR UPDATE SKIP LOCKED`,
  )
  const ids = held.map(({ id }) => id)
  return execute(trx, sql`DELETE FROM project_key k WHERE k.id = ANY (${ids}::uuid[]) AND ${UNUSED}`)
}
