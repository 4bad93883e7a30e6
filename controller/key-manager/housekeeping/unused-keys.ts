import type { Knex } from 'knex'

const LIVE_IN_PROJECT = ['secret', 'container', 'secret_order'].map(
  table => `SELECT FROM ${table} o WHERE o.project_id = k.project_id AND o.deleted_at IS NULL`,
)
const UNDER_KEY = ['secret', 'secret_order', 'certificate_authority'].map(
  table => `SELECT FROM ${table} o WHERE o.project_key_id = k.id`,
)

/** SQL: keys (alias k) of projects that have nothing any more. Those of the service itself are none of them. */
const UNUSED = `k.project_id <> '' AND ${[...LIVE_IN_PROJECT, ...UNDER_KEY].map(sql => `NOT EXISTS (${sql})`).join(' AND ')}`

/**
 * Removes the keys of projects that have nothing any more; one that comes back gets a new key. A key is held before it is looked at again, so
 * nothing can be stored under it in between.
 * @returns how many there were
 */
export async function removeUnusedProjectKeys(trx: Knex.Transaction): Promise<number> {
  const { rows } = await trx.raw(`SELECT k.id FROM project_key k WHERE ${UNUSED} FOR UPDATE SKIP LOCKED`)
  const ids = (rows as { id: string }[]).map(({ id }) => id)
  const { rowCount } = await trx.raw(`DELETE FROM project_key k WHERE k.id = ANY (?::uuid[]) AND ${UNUSED}`, [ids])
  return rowCount
}
