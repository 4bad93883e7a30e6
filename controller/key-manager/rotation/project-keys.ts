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

/** Attempts at one project whose keys somebody else replaces or uses at the same time. */
const MOST_ATTEMPTS = 20

/** `startedAt` as PostgreSQL writes it, to the microsecond. */
type Rotation = { id: string; startedAt: string; isResumed: boolean }
type Place = { projectId: string; backend: BackendName }

/** Keys (alias k) that a rotation has something to do with. */
const isConcerned = ({ startedAt }: Rotation, projectId: string | null): Fragment =>
  sql`(NOT k.active OR k.created_at < ${startedAt}::timestamptz) AND (${projectId}::text IS NULL OR k.project_id = ${projectId})`

/**
 * Gives projects new keys, encrypts all that they store under these, and deletes the former keys, while all goes on being used. May be stopped
 * at any instant: the next run goes on with what is left; several at once share the work.
 * @param projectId null for all projects, and the service itself
 * @param onResume is told when an earlier rotation began that has not ended: this one only brings it to its end
 * @throws CryptoUnavailable
 */
export async function rotateProjectKeys(
  database: Database,
  backends: ReadonlyMap<BackendName, CryptoBackend>,
  projectId: string | null,
  { report, onResume }: { report: Report; onResume: (startedAt: string) => void },
): Promise<RotationResult & { projects: number }> {
  const rotation = await beginOrResume(database, projectId)
  if (rotation.isResumed) onResume(rotation.startedAt)
  const concerned = isConcerned(rotation, projectId)
  const places = await many(
    database,
    sql<Place>`
      SELECT DISTINCT k.project_id AS "projectId", k.backend FROM project_key k WHERE ${concerned} ORDER BY 1, 2`,
  )
  const { total } = await one(database, sql<{ total: number }>`SELECT ${countValues(concerned)} AS total`)
  const result = { projects: 0, done: 0, unreadable: 0 }
  for (const place of places) {
    const backend = backends.get(place.backend)
    if (backend === undefined) throw new CryptoMisconfigured(`The crypto back end ${place.backend} is not configured.`)
    result.unreadable += await rotatePlace(database, backend, place, rotation, done => {
      result.done += done
      report({ done: result.done, total })
    })
    result.projects += 1
  }
  await execute(database, sql`DELETE FROM key_rotation WHERE id = ${rotation.id}`)
  return result
}

async function beginOrResume(database: Database, projectId: string | null): Promise<Rotation> {
  for (;;) {
    const begun = await execute(
      database,
      sql`INSERT INTO key_rotation (id, project_id) VALUES (${newId()}, ${projectId}) ON CONFLICT DO NOTHING`,
    )
    const found = await maybeOne(
      database,
      sql<Omit<Rotation, 'isResumed'>>`
        SELECT id, started_at::text AS "startedAt" FROM key_rotation WHERE project_id IS NOT DISTINCT FROM ${projectId}::text`,
    )
    // Another one may have ended it in between.
    if (found !== undefined) return { ...found, isResumed: begun === 0 }
  }
}

/** @returns how many values do not open */
async function rotatePlace(
  database: Database,
  backend: CryptoBackend,
  place: Place,
  { startedAt }: Rotation,
  onBatch: (done: number) => void,
): Promise<number> {
  await replaceActive(database, backend, place, startedAt)
  for (let attempt = 1; attempt <= MOST_ATTEMPTS; attempt++) {
    const { active, former } = await keysOf(database, place)
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
      // A value came under the key just before it was replaced, or somebody else has done the same and is further.
      if (!isKeyInUse(error)) throw error
    }
  }
  throw new Error(`The keys of project ${place.projectId} are replaced by somebody else all the time.`)
}

/** Makes the key that was active before the rotation a former one, with a new one in its place. */
async function replaceActive(
  database: Database,
  backend: CryptoBackend,
  { projectId }: Place,
  startedAt: string,
): Promise<void> {
  for (let attempt = 1; attempt <= MOST_ATTEMPTS; attempt++) {
    const masterKeyId = await activeMasterKey(database, backend.name)
    if (masterKeyId === null) throw new CryptoMisconfigured(`${backend.name} has no master key in force.`)
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
  throw new Error(`The master key of ${backend.name} is replaced all the time.`)
}

class MasterKeyReplaced extends Error {}

async function keysOf(
  database: Database,
  { projectId, backend }: Place,
): Promise<{ active: ProjectKey | undefined; former: ProjectKey[] }> {
  const keys = await many(
    database,
    sql<ProjectKey & { active: boolean }>`
      SELECT id, wrapped, master_key_id AS "masterKeyId", active FROM project_key
       WHERE project_id = ${projectId} AND backend = ${backend} ORDER BY created_at, id`,
  )
  return { active: keys.find(key => key.active), former: keys.filter(key => !key.active) }
}

/** @throws a violated foreign key while something is under it */
async function deleteKey(database: Database, backend: CryptoBackend, id: string): Promise<void> {
  await execute(database, sql`DELETE FROM project_key WHERE id = ${id} AND NOT active`)
  backend.forget(id)
}
