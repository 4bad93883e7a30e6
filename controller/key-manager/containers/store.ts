import type { Knex } from 'knex'
import { query } from '../../database/query.js'
import { quotaReached } from '../faults.js'
import { missing, newId } from '../ids.js'
import { LIVE } from '../secrets/secret.js'
import type { ContainerType } from './container.js'

export type ContainerToStore = {
  projectId: string
  creatorId: string
  name: string | null
  type: ContainerType
  /** In the order in which they will be shown; no secret twice. */
  references: readonly { name: string | null; secretId: string }[]
}

/**
 * Stores a container in one statement. Its secrets are held meanwhile: one that is deleted at the same time is either found gone here, or
 * found in use there.
 * @param limit most containers of a project without a limit of its own; negative is no limit
 * @returns its id
 * @throws ApiError 403 when the project's quota of containers is reached, 404 when a secret is not there
 */
export async function storeContainer(database: Knex, container: ContainerToStore, limit: number): Promise<string> {
  const id = newId()
  const { projectId, creatorId, name, type, references } = container
  const [outcome] = await query<{ fits: boolean; stored: boolean }>(
    database,
    `WITH allowed AS MATERIALIZED (SELECT quota_allows(?::text, 'containers', ?) AS fits),
     wanted AS (SELECT * FROM unnest(?::uuid[], ?::text[]) WITH ORDINALITY AS r (secret_id, name, position)),
     held AS MATERIALIZED (
       SELECT s.id FROM allowed CROSS JOIN secret s
        WHERE fits AND s.id IN (SELECT secret_id FROM wanted) AND s.project_id = ? AND ${LIVE} FOR KEY SHARE OF s),
     made AS (
       INSERT INTO container (id, project_id, creator_id, name, type, created_at, updated_at)
       SELECT ?::uuid, ?, ?, ?, ?, now(), now()
         FROM allowed WHERE fits AND (SELECT count(*) FROM held) = (SELECT count(*) FROM wanted) RETURNING id),
     referring AS (
       INSERT INTO container_secret (container_id, secret_id, name)
       SELECT made.id, wanted.secret_id, wanted.name FROM made CROSS JOIN wanted ORDER BY wanted.position)
     SELECT fits, EXISTS (SELECT FROM made) AS stored FROM allowed`,
    [
      ...[projectId, limit, references.map(({ secretId }) => secretId), references.map(reference => reference.name)],
      ...[projectId, id, projectId, creatorId, name, type],
    ],
  )
  if (outcome?.fits !== true) throw quotaReached('containers')
  if (!outcome.stored) throw missing('Secret')
  return id
}
