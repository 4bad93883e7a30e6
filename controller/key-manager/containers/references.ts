import type { Knex } from 'knex'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { badRequest } from '../../http/errors.js'
import { idInReference, missing } from '../ids.js'
import { isPermitted, type Policy, type Requester, type Target } from '../rights.js'
import { LIVE, targetColumns } from '../secrets/secret.js'

/**
 * @param base URL of the root of the API
 * @returns the id of the secret
 * @throws ApiError 400 for a reference to another service, 404 for one without an id
 */
export function parseSecretReference(reference: string, base: string): string {
  if (!reference.startsWith(`${base}/`)) throw badRequest(`The secret_ref must begin with ${base}/.`)
  const id = idInReference(reference)
  if (id === null) throw missing('Secret')
  return id
}

/**
 * Requires that all secrets belong to the project and that the caller may see them. Others count as missing: an ACL
 * that lists the caller does not allow another project's secret in a container.
 * @throws ApiError 404
 */
export async function requireOwnSecrets(
  database: Knex,
  { requester, policy }: { requester: Requester; policy: Policy },
  ids: readonly string[],
): Promise<void> {
  if (ids.length === 0) return
  const targets = await many(
    database,
    sql<Target>`
      SELECT ${targetColumns('s')} FROM secret s
       WHERE s.id = ANY(${ids}::uuid[]) AND s.project_id = ${requester.projectId} AND ${LIVE}`,
  )
  const visible = targets.filter(target => isPermitted(policy, 'secret show', requester, target))
  if (visible.length < new Set(ids).size) throw missing('Secret')
}
