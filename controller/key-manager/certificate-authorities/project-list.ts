import type { Database } from '../../database/connection.js'
import { execute, many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { badRequest, conflict } from '../../http/errors.js'
import { missing } from '../ids.js'

type ListedAuthority = { caId: string; preferred: boolean }

/** Runs a change of the list of CAs that a project uses; changes of the same list take turns. */
async function changing<Result>(
  database: Database,
  projectId: string,
  change: (trx: Transaction, list: readonly ListedAuthority[]) => Promise<Result>,
): Promise<Result> {
  return inTransaction(database, async trx => {
    await execute(trx, sql`INSERT INTO project (id) VALUES (${projectId}) ON CONFLICT DO NOTHING`)
    await execute(trx, sql`SELECT 1 FROM project WHERE id = ${projectId} FOR UPDATE`)
    const list = await many(
      trx,
      sql<ListedAuthority>`
        SELECT ca_id AS "caId", preferred FROM project_certificate_authority WHERE project_id = ${projectId}`,
    )
    return change(trx, list)
  })
}

const isOn = (list: readonly ListedAuthority[], caId: string): boolean => list.some(listed => listed.caId === caId)

/** Once a CA is deleted it cannot be put on a list. */
async function add(trx: Transaction, projectId: string, caId: string, preferred: boolean): Promise<void> {
  const added = await execute(
    trx,
    sql`INSERT INTO project_certificate_authority (project_id, ca_id, preferred)
        SELECT ${projectId}, a.id, ${preferred} FROM certificate_authority a WHERE a.id = ${caId} FOR KEY SHARE OF a`,
  )
  if (added === 0) throw missing('Certificate authority')
}

/** Puts a CA on the project's list; the first one is preferred. One that is there already stays. */
export const addToList = (database: Database, projectId: string, caId: string): Promise<void> =>
  changing(database, projectId, async (trx, list) => {
    if (!isOn(list, caId)) await add(trx, projectId, caId, list.length === 0)
  })

/** @throws ApiError 404 when it is not there, 409 when it is preferred to others */
export const removeFromList = (database: Database, projectId: string, caId: string): Promise<void> =>
  changing(database, projectId, async (trx, list) => {
    if (!isOn(list, caId)) throw missing('Certificate authority on the list of the project')
    requireDispensable(list, caId)
    await execute(
      trx,
      sql`DELETE FROM project_certificate_authority WHERE project_id = ${projectId} AND ca_id = ${caId}`,
    )
  })

/** Prefers a CA; on an empty list it is put. @throws ApiError 400 when it is not on the list */
export const prefer = (database: Database, projectId: string, caId: string): Promise<void> =>
  changing(database, projectId, async (trx, list) => {
    if (list.length === 0) return add(trx, projectId, caId, true)
    if (!isOn(list, caId)) throw badRequest('The certificate authority is not on the list of the project.')
    // One after the other: at no instant may two be preferred.
    await execute(trx, sql`UPDATE project_certificate_authority SET preferred = false WHERE project_id = ${projectId}`)
    await execute(
      trx,
      sql`UPDATE project_certificate_authority SET preferred = true WHERE project_id = ${projectId} AND ca_id = ${caId}`,
    )
  })

/** Runs a deletion of a CA of the project while the list stands still. @throws ApiError 409 when it is preferred to others */
export const deletingFromList = <Result>(
  database: Database,
  projectId: string,
  caId: string,
  remove: (trx: Transaction) => Promise<Result>,
): Promise<Result> =>
  changing(database, projectId, async (trx, list) => {
    requireDispensable(list, caId)
    return remove(trx)
  })

function requireDispensable(list: readonly ListedAuthority[], caId: string): void {
  if (list.length > 1 && list.some(listed => listed.caId === caId && listed.preferred)) {
    throw conflict(
      'The certificate authority is the preferred one of the project, and there are others: prefer another one first.',
    )
  }
}
