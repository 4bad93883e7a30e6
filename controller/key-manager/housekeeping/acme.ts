import type { Knex } from 'knex'
import { sql } from '../../database/sql.js'
import { BATCH_SIZE, inBatches } from './batches.js'

export type PurgedAcme = { nonces: number; orders: number; accounts: number; keys: number }

/**
 * Removes what the ACME server needs no longer: nonces that are too old to be used again, orders past their time, and
 * accounts and keys that ended more than `minDays` days ago.
 */
export async function purgeAcme(database: Knex, minDays: number, signal?: AbortSignal): Promise<PurgedAcme> {
  const nonces = await inBatches(
    database,
    sql`DELETE FROM acme_used_nonce WHERE nonce IN (
          SELECT nonce FROM acme_used_nonce WHERE expires_at < now() ORDER BY expires_at LIMIT ${BATCH_SIZE}) RETURNING nonce`,
    signal,
  )
  const orders = await inBatches(
    database,
    sql`DELETE FROM acme_order WHERE id IN (
          SELECT id FROM acme_order WHERE purge_at < now() ORDER BY purge_at LIMIT ${BATCH_SIZE}) RETURNING id`,
    signal,
  )
  const ended = sql`now() - ${minDays} * interval '1 day'`
  const accounts = await inBatches(
    database,
    sql`DELETE FROM acme_account WHERE id IN (
          SELECT id FROM acme_account WHERE deactivated_at < ${ended} LIMIT ${BATCH_SIZE}) RETURNING id`,
    signal,
  )
  const keys = await inBatches(
    database,
    sql`DELETE FROM acme_binding_key WHERE id IN (
          SELECT id FROM acme_binding_key WHERE revoked_at < ${ended} LIMIT ${BATCH_SIZE}) RETURNING id`,
    signal,
  )
  return { nonces, orders, accounts, keys }
}
