import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { auditInsert } from '../audit/record.js'
import { type BackendName, type CryptoBackend, CryptoMisconfigured, type ProjectKey } from '../crypto/backend.js'
import { insertActiveKey } from '../crypto/keyring.js'
import { activeMasterKey } from '../crypto/master-key.js'
import { newId } from '../ids.js'
import type { Report, RotationResult } from './progress.js'
import { countValues, isKeyInUse, resealAll } from './sealed-values.js'

/** Each failed attempt means that another process replaced or used a key of the project meanwhile. */
const MAX_ATTEMPTS = 20

/** `startedAt` is PostgreSQL's text, to the microsecond. */
type Rotation = { id: string; startedAt: string; isResumed: boolean }
type KeyOwner = { projectId: string; backend: BackendName }

/** SQL: whether a rotation replaces or deletes a key (alias k). */
const isAffected = ({ startedAt }: Rotation, projectId: string | null): Fragment =>
  sql`(NOT k.active OR k.created_at < ${startedAt}::timestamptz) AND (${projectId}::text IS NULL OR k.project_id = ${projectId})`

/**
 * Gives projects new keys, re-encrypts their values with these and deletes the former keys, while everything
 * stays usable. May be interrupted at any time: the next run continues. Concurrent runs share the work.
 * @param projectId null for all projects and the service itself
 * @param onResume gets the start of an unfinished earlier rotation, which this run then only completes
 * @throws CryptoUnavailable
 */
export async function rotateProjectKeys(
  database: Database,
  backends: ReadonlyMap<BackendName, CryptoBackend>,
  projectId: string | null,
  { report, onResume }: { report: Report; onResume: (startedAt: string) => void },
): Promise<RotationResult & { projects: number }> {
  const rotation = await startOrResume(database, projectId)
  if (rotation.isResumed) onResume(rotation.startedAt)
  const affected = isAffected(rotation, projectId)
  const owners = await many(
    database,
    sql<KeyOwner>`
      SELECT DISTINCT k.project_id AS "projectId", k.backend FROM project_key k WHERE ${affected} ORDER BY 1, 2`,
  )
  const { total } = await one(database, sql<{ total: number }>`SELECT ${countValues(affected)} AS total`)
  const result = { projects: 0, done: 0, unreadable: 0 }
  for (const owner of owners) {
    const backend = backends.get(owner.backend)
    if (backend === undefined) throw new CryptoMisconfigured(`The crypto back end ${owner.backend} is not configured.`)
    result.unreadable += await rotateOwner(database, backend, owner, rotation, done => {
      result.done += done
      report({ done: result.done, total })
    })
    result.projects += 1
  }
  await execute(database, sql`DELETE FROM key_rotation WHERE id = ${rotation.id}`)
  return result
}

async function startOrResume(database: Database, projectId: string | null): Promise<Rotation> {
  for (;;) {
    const inserted = await execute(
      database,
      sql`INSERT INTO key_rotation (id, project_id) VALUES (${newId()}, ${projectId}) ON CONFLICT DO NOTHING`,
    )
    const found = await maybeOne(
      database,
      sql<Omit<Rotation, 'isResumed'>>`
        SELECT id, started_at::text AS "startedAt" FROM key_rotation WHERE project_id IS NOT DISTINCT FROM ${projectId}::text`,
    )
    // A concurrent run may have completed it in between.
    if (found !== undefined) return { ...found, isResumed: inserted === 0 }
  }
}

/** @returns how many values cannot be decrypted */
async function rotateOwner(
  database: Database,
  backend: CryptoBackend,
  owner: KeyOwner,
  { startedAt }: Rotation,
  onBatch: (done: number) => void,
): Promise<number> {
  await replaceActive(database, backend, owner, startedAt)
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const { active, former } = await findKeys(database, owner)
    if (former.length === 0 || active === undefined) return 0
    let unreadable = 0
    try {
      for (const from of former) {
        const left = await resealAll(database, backend, { from, to: active }, onBatch)
        unreadable += left
        if (left === 0) await deleteKey(database, backend, from.id)
      }
      return unreadable
    } catch (error) {
      // A value was stored under the key just before its replacement, or a concurrent run is ahead of this one.
      if (!isKeyInUse(error)) throw error
    }
  }
  throw new Error(
    `Another process replaced or used the keys of project ${owner.projectId} during each of ${MAX_ATTEMPTS} attempts.`,
  )
}

/** Replaces the active key, if it is older than the rotation, and makes it a former key. */
async function replaceActive(
  database: Database,
  backend: CryptoBackend,
  { projectId }: KeyOwner,
  startedAt: string,
): Promise<void> {
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const masterKeyId = await activeMasterKey(database, backend.name)
    if (masterKeyId === null) throw new CryptoMisconfigured(`${backend.name} has no active master key.`)
    const made = await backend.createProjectKey(masterKeyId)
    const replaced = await inTransaction(database, async trx => {
      const audit = auditInsert(
        { userId: null, projectId, requestId: null, remoteAddress: null },
        {
          action: 'project-key.rotate',
          outcome: 'success',
          targetType: 'project',
          targetId: projectId,
          detail: { backend: backend.name },
        },
        sql`former`,
      )
      const former = await maybeOne(
        trx,
        sql`WITH former AS (UPDATE project_key SET active = false
                             WHERE project_id = ${projectId} AND backend = ${backend.name} AND active
                               AND created_at < ${startedAt}::timestamptz RETURNING id),
                 logged AS (${audit}) SELECT id FROM former`,
      )
      if (former === undefined) return true
      if (await insertActiveKey(trx, projectId, backend.name, made)) return true
      throw new MasterKeyReplaced()
    }).catch(error => {
      if (error instanceof MasterKeyReplaced) return false
      throw error
    })
    if (replaced) return
  }
  throw new Error(`The master key of ${backend.name} was replaced during each of ${MAX_ATTEMPTS} attempts.`)
}

class MasterKeyReplaced extends Error {}

async function findKeys(
  database: Database,
  { projectId, backend }: KeyOwner,
): Promise<{ active: ProjectKey | undefined; former: ProjectKey[] }> {
  const keys = await many(
    database,
    sql<ProjectKey & { active: boolean }>`
      SELECT id, wrapped, master_key_id AS "masterKeyId", active FROM project_key
       WHERE project_id = ${projectId} AND backend = ${backend} ORDER BY created_at, id`,
  )
  return { active: keys.find(key => key.active), former: keys.filter(key => !key.active) }
}

/** @throws a foreign key violation while a value uses it */
async function deleteKey(database: Database, backend: CryptoBackend, id: string): Promise<void> {
  await execute(database, sql`DELETE FROM project_key WHERE id = ${id} AND NOT active`)
  backend.forget(id)
}
