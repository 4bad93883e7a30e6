import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne, one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { auditInsert } from '../audit/record.js'
import { type BackendName, CannotOpen, type CryptoBackend, type ProjectKey } from '../crypto/backend.js'
import { activeMasterKey, WrongMasterKey } from '../crypto/master-key.js'
import type { Report, RotationResult } from './progress.js'

const BATCH_SIZE = 200

/**
 * Activates a master key, unless it is active, and wraps every project key of its back end with it while all
 * keys stay usable. May be interrupted at any time and run again.
 * @throws WrongMasterKey if that key was active before or belongs to another back end; CryptoUnavailable
 */
export async function rotateMasterKey(
  database: Database,
  backend: CryptoBackend,
  masterKeyId: string,
  report: Report,
): Promise<RotationResult> {
  await activate(database, backend, masterKeyId)
  const total = await keysUnderFormer(database, backend.name)
  const result = { done: 0, unreadable: 0 }
  let last = '00000000-0000-0000-0000-000000000000'
  for (;;) {
    const keys = await batchAfter(database, backend.name, masterKeyId, last)
    last = keys.at(-1)?.id ?? last
    if (keys.length === 0) return result
    const rewrapped = await Promise.all(keys.map(key => rewrap(backend, key, masterKeyId)))
    const readable = rewrapped.filter(key => key !== null)
    await storeRewrapped(database, readable, masterKeyId)
    result.done += readable.length
    result.unreadable += rewrapped.length - readable.length
    report({ done: result.done, total })
  }
}

/** How many project keys a former master key wraps: those an interrupted rotation left. */
export async function keysUnderFormer(database: Database, backend: BackendName): Promise<number> {
  const { keys } = await one(
    database,
    sql<{ keys: number }>`
      SELECT count(*) AS keys FROM project_key k JOIN master_key m ON m.id = k.master_key_id
       WHERE k.backend = ${backend} AND NOT m.active`,
  )
  return keys
}

/** After the commit, no process can store a key under another master key of this back end. */
async function activate(database: Database, backend: CryptoBackend, id: string): Promise<void> {
  const { name } = backend
  if ((await activeMasterKey(database, name)) === id) return
  const checkValue = await backend.makeCheckValue(id)
  await inTransaction(database, async trx => {
    const former = await maybeOne(
      trx,
      sql<{ id: string }>`SELECT id FROM master_key WHERE backend = ${name} AND active FOR UPDATE`,
    )
    if (former?.id === id) return
    await execute(trx, sql`UPDATE master_key SET active = false WHERE backend = ${name} AND active`)
    const audit = auditInsert(
      { userId: null, projectId: null, requestId: null, remoteAddress: null },
      {
        action: 'master-key.rotate',
        outcome: 'success',
        targetType: 'key',
        targetId: id,
        detail: { backend: name, former: former?.id ?? null },
      },
      sql`made`,
    )
    const made = await maybeOne(
      trx,
      sql`WITH made AS (INSERT INTO master_key (id, backend, check_value) VALUES (${id}, ${name}, ${checkValue})
                        ON CONFLICT (id) DO NOTHING RETURNING id),
               logged AS (${audit}) SELECT id FROM made`,
    )
    if (made === undefined) {
      throw new WrongMasterKey(`The master key ${id} was used before. A rotation needs a new one.`)
    }
  })
}

async function batchAfter(
  database: Database,
  backend: BackendName,
  masterKeyId: string,
  last: string,
): Promise<ProjectKey[]> {
  return many(
    database,
    sql<ProjectKey>`
      SELECT id, wrapped, master_key_id AS "masterKeyId" FROM project_key
       WHERE backend = ${backend} AND master_key_id <> ${masterKeyId} AND id > ${last} ORDER BY id LIMIT ${BATCH_SIZE}`,
  )
}

/** Null if the key cannot be unwrapped. */
async function rewrap(backend: CryptoBackend, key: ProjectKey, masterKeyId: string): Promise<ProjectKey | null> {
  try {
    return { ...(await backend.rewrapProjectKey(key, masterKeyId)), id: key.id }
  } catch (error) {
    if (error instanceof CannotOpen) return null
    throw error
  }
}

/** Skips keys that another process wrapped meanwhile: it is the same key. */
async function storeRewrapped(database: Database, keys: readonly ProjectKey[], masterKeyId: string): Promise<void> {
  if (keys.length === 0) return
  await inTransaction(database, trx =>
    execute(
      trx,
      sql`UPDATE project_key k SET wrapped = new.wrapped, master_key_id = ${masterKeyId}
            FROM unnest(${keys.map(({ id }) => id)}::uuid[], ${keys.map(({ wrapped }) => wrapped)}::bytea[]) AS new(id, wrapped)
           WHERE k.id = new.id AND k.master_key_id <> ${masterKeyId}`,
    ),
  )
}
