import type { Database } from '../../database/connection.js'
import { execute, many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { inTransaction, type Transaction } from '../../database/transaction.js'
import { badRequest, conflict } from '../../http/errors.js'
import { missing } from '../ids.js'

type ListedAuthority = { caId: string; preferred: boolean }

/** Changes a project's list of CAs. Changes of the same list run one after the other. */
async function changeList<Result>(
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

const isListed = (list: readonly ListedAuthority[], caId: string): boolean => list.some(listed => listed.caId === caId)

/** @throws ApiError 404 if the CA was deleted meanwhile */
async function add(trx: Transaction, projectId: string, caId: string, preferred: boolean): Promise<void> {
  const added = await execute(
    trx,
    sql`INSERT INTO project_certificate_authority (project_id, ca_id, preferred)
        SELECT ${projectId}, a.id, ${preferred} FROM certificate_authority a WHERE a.id = ${caId} FOR KEY SHARE OF a`,
  )
  if (added === 0) throw missing('Certificate authority')
}

/** Adds a CA to the project's list, unless it is there; the first CA becomes the preferred one. */
export const addToList = (database: Database, projectId: string, caId: string): Promise<void> =>
  changeList(database, projectId, async (trx, list) => {
    if (!isListed(list, caId)) await add(trx, projectId, caId, list.length === 0)
  })

/** @throws ApiError 404 if the CA is not on the list, 409 if it is the preferred one of several */
export const removeFromList = (database: Database, projectId: string, caId: string): Promise<void> =>
  changeList(database, projectId, async (trx, list) => {
    if (!isListed(list, caId)) throw missing('Certificate authority on the list of the project')
    requireRemovable(list, caId)
    await execute(
      trx,
      sql`DELETE FROM project_certificate_authority WHERE project_id = ${projectId} AND ca_id = ${caId}`,
    )
  })

/** Makes a CA the preferred one, and adds it if the list is empty. @throws ApiError 400 if it is not on the list */
export const prefer = (database: Database, projectId: string, caId: string): Promise<void> =>
  changeList(database, projectId, async (trx, list) => {
    if (list.length === 0) return add(trx, projectId, caId, true)
    if (!isListed(list, caId)) throw badRequest('The certificate authority is not on the list of the project.')
    // In two steps, because a unique index allows only one preferred CA.
    await execute(trx, sql`UPDATE project_certificate_authority SET preferred = false WHERE project_id = ${projectId}`)
    await execute(
      trx,
      sql`UPDATE project_certificate_authority SET preferred = true WHERE project_id = ${projectId} AND ca_id = ${caId}`,
    )
  })

/** Deletes a CA of the project while its list is locked. @throws ApiError 409 if it is the preferred one of several */
export const deleteListed = <Result>(
  database: Database,
  projectId: string,
  caId: string,
  remove: (trx: Transaction) => Promise<Result>,
): Promise<Result> =>
  changeList(database, projectId, async (trx, list) => {
    requireRemovable(list, caId)
    return remove(trx)
  })

function requireRemovable(list: readonly ListedAuthority[], caId: string): void {
  if (list.length > 1 && list.some(listed => listed.caId === caId && listed.preferred)) {
    throw conflict('The certificate authority is the preferred one of the project. Make another one preferred first.')
  }
}
