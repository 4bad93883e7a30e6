import type { Knex } from 'knex'
import { execute, many, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { BackendName, CryptoBackend } from './backend.js'

/** The configured master keys are not those that the stored keys are under. */
export class WrongMasterKey extends Error {}

type MasterKeyRow = { id: string; active: boolean; checkValue: Buffer; keys: number }

/**
 * Sees to it that the master key in force, and every other that stored keys are still under, is known to the back end; the very first one
 * is put in force.
 * @throws WrongMasterKey saying which are needed, which there are, and what to do
 */
export async function requireMasterKeys(database: Knex, backend: CryptoBackend): Promise<void> {
  if ((await activeMasterKey(database, backend.name)) === null) await putFirstInForce(database, backend)
  const rows = await masterKeysInUse(database, backend.name)
  for (const { id, checkValue, active, keys } of rows) {
    const known = await backend.knowsMasterKey(id)
    if (known && (await backend.matchesCheckValue(id, checkValue))) continue
    const needed = `${keys} ${keys === 1 ? 'project key is' : 'project keys are'} under the master key ${id}${active ? ', which is in force' : ''}`
    const found = known ? 'holds another key by that name' : `does not have it: it has ${backend.firstMasterKeyId}`
    throw new WrongMasterKey(
      `The master key is wrong: of ${backend.name}, ${needed}, but ${backend.origin} ${found}. ` +
        'Without that key what is stored cannot be opened. Put it back there (from the backup of the keys, or from another machine of this installation); ' +
        'to replace a master key by another one, have both there and run `krater key-manager rotate-master-key`.',
    )
  }
}

/** Of processes that start at once one wins. */
async function putFirstInForce(database: Knex, backend: CryptoBackend): Promise<void> {
  const id = backend.firstMasterKeyId
  if (!(await backend.knowsMasterKey(id)))
    throw new WrongMasterKey(`There is no master key ${id} in ${backend.origin}.`)
  const checkValue = await backend.makeCheckValue(id)
  await execute(
    database,
    sql`INSERT INTO master_key (id, backend, check_value) VALUES (${id}, ${backend.name}, ${checkValue}) ON CONFLICT DO NOTHING`,
  )
}

async function masterKeysInUse(database: Knex, backend: BackendName): Promise<MasterKeyRow[]> {
  return many(
    database,
    sql<MasterKeyRow>`
      SELECT m.id, m.active, m.check_value AS "checkValue", count(k.id) AS keys
        FROM master_key m LEFT JOIN project_key k ON k.master_key_id = m.id
       WHERE m.backend = ${backend} GROUP BY m.id HAVING m.active OR count(k.id) > 0 ORDER BY m.active DESC, m.id`,
  )
}

/**
 * Refuses to run without a back end that something is stored with.
 * @throws WrongMasterKey
 */
export async function requireBackends(database: Knex, names: readonly BackendName[]): Promise<void> {
  const missing = await maybeOne(
    database,
    sql<{ backend: string; keys: number }>`
      SELECT backend, count(*) AS keys FROM project_key WHERE NOT backend = ANY(${names}::text[]) GROUP BY backend`,
  )
  if (missing === undefined) return
  throw new WrongMasterKey(
    `${missing.keys} project keys are in the crypto back end ${missing.backend}, which key_manager.crypto.backends does not name. Name it there; it need not be the first.`,
  )
}

/** The master key in force; null before the first start. */
export async function activeMasterKey(database: Knex, backend: BackendName): Promise<string | null> {
  const found = await maybeOne(
    database,
    sql<{ id: string }>`SELECT id FROM master_key WHERE backend = ${backend} AND active`,
  )
  return found?.id ?? null
}
