import type { Knex } from 'knex'
import { many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { badRequest } from '../../http/errors.js'
import { idInReference, missing } from '../ids.js'
import { mayDo, type Policy, type Target, type Who } from '../rights.js'
import { LIVE, targetColumns } from '../secrets/secret.js'

/**
 * The id of the secret that a reference names.
 * @param base URL of the root of the API
 * @throws ApiError 400 for a reference to another service, 404 for one that names no secret
 */
export function secretIdOf(reference: string, base: string): string {
  if (!reference.startsWith(`${base}/`)) throw badRequest(`The secret_ref must begin with ${base}/.`)
  const id = idInReference(reference)
  if (id === null) throw missing('Secret')
  return id
}

/**
 * Whether all these secrets are the project's own and the caller may see them. Whatever else there is counts as if it did not exist: that
 * an ACL lists the caller does not put another project's secret into a container.
 * @throws ApiError 404
 */
export async function requireOwnSecrets(
  database: Knex,
  { who, policy }: { who: Who; policy: Policy },
  ids: readonly string[],
): Promise<void> {
  if (ids.length === 0) return
  const targets = await many(
    database,
    sql<Target>`
      SELECT ${targetColumns('s')} FROM secret s
       WHERE s.id = ANY(${ids}::uuid[]) AND s.project_id = ${who.projectId} AND ${LIVE}`,
  )
  const seen = targets.filter(target => mayDo(policy, 'secret show', who, target))
  if (seen.length < new Set(ids).size) throw missing('Secret')
}
