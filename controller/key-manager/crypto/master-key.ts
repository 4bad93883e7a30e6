import type { Knex } from 'knex'
import { execute, many, maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { BackendName, CryptoBackend } from './backend.js'

/** The configured master keys cannot unwrap the stored project keys. */
export class WrongMasterKey extends Error {}

type MasterKeyRow = { id: string; active: boolean; checkValue: Buffer; keys: number }

/**
 * Checks that the back end knows the active master key and every other that still wraps project keys. On the
 * first start, activates the first master key.
 * @throws WrongMasterKey that names the needed and the available key, and what to do
 */
export async function requireMasterKeys(database: Knex, backend: CryptoBackend): Promise<void> {
  if ((await activeMasterKey(database, backend.name)) === null) await activateFirst(database, backend)
  const rows = await masterKeysInUse(database, backend.name)
  for (const { id, checkValue, active, keys } of rows) {
    const known = await backend.knowsMasterKey(id)
    if (known && (await backend.matchesCheckValue(id, checkValue))) continue
    const needed = `${keys} ${keys === 1 ? 'project key needs' : 'project keys need'} the ${active ? 'active' : 'former'} master key ${id}`
    const found = known ? 'holds a different key with that id' : `does not have it: it has ${backend.firstMasterKeyId}`
    throw new WrongMasterKey(
      `The master key is wrong: ${needed} in ${backend.name}, but ${backend.origin} ${found}. ` +
        'Without that key the stored secrets cannot be decrypted. Put it back there (from the backup of the keys, or from another machine of this installation). ' +
        'To replace a master key, keep both keys there and run `krater key-manager rotate-master-key`.',
    )
  }
}

/** If processes start at once, the first insert wins. */
async function activateFirst(database: Knex, backend: CryptoBackend): Promise<void> {
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
 * Checks that every back end with stored project keys is configured.
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
    `${missing.keys} project keys are in the crypto back end ${missing.backend}, which key_manager.crypto.backends does not list. Add it there; it need not be the first.`,
  )
}

/** Id of the active master key; null before the first start. */
export async function activeMasterKey(database: Knex, backend: BackendName): Promise<string | null> {
  const found = await maybeOne(
    database,
    sql<{ id: string }>`SELECT id FROM master_key WHERE backend = ${backend} AND active`,
  )
  return found?.id ?? null
}
