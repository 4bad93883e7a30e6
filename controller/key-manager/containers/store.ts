import type { Knex } from 'knex'
import { one } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { missing, newId } from '../ids.js'
import { quotaReached } from '../rights.js'
import { LIVE } from '../secrets/secret.js'
import type { ContainerType } from './container.js'

export type ContainerToStore = {
  projectId: string
  creatorId: string
  name: string | null
  type: ContainerType
  /** In the order in which they are shown, without duplicate secrets. */
  references: readonly { name: string | null; secretId: string }[]
}

/**
 * Stores a container in one statement that locks its secrets. When a secret is deleted concurrently, either this
 * finds it deleted or the deletion finds it in use.
 * @param limit default quota of containers per project; negative is unlimited
 * @returns its id
 * @throws ApiError 403 when the project's quota of containers is reached, 404 when a secret does not exist
 */
export async function storeContainer(database: Knex, container: ContainerToStore, limit: number): Promise<string> {
  const id = newId()
  const { projectId, creatorId, name, type, references } = container
  const [secretIds, names] = [references.map(({ secretId }) => secretId), references.map(reference => reference.name)]
  const outcome = await one(
    database,
    sql<{ fits: boolean; stored: boolean }>`
     WITH allowed AS MATERIALIZED (SELECT quota_allows(${projectId}::text, 'containers', ${limit}) AS fits),
     requested AS (SELECT * FROM unnest(${secretIds}::uuid[], ${names}::text[]) WITH ORDINALITY AS r (secret_id, name, position)),
     held AS MATERIALIZED (
       SELECT s.id FROM allowed CROSS JOIN secret s
        WHERE fits AND s.id IN (SELECT secret_id FROM requested) AND s.project_id = ${projectId} AND ${LIVE} FOR KEY SHARE OF s),
     made AS (
       INSERT INTO container (id, project_id, creator_id, name, type, created_at, updated_at)
       SELECT ${id}::uuid, ${projectId}, ${creatorId}, ${name}, ${type}, now(), now()
         FROM allowed WHERE fits AND (SELECT count(*) FROM held) = (SELECT count(*) FROM requested) RETURNING id),
     referring AS (
       INSERT INTO container_secret (container_id, secret_id, name)
       SELECT made.id, requested.secret_id, requested.name FROM made CROSS JOIN requested ORDER BY requested.position)
     SELECT fits, EXISTS (SELECT FROM made) AS stored FROM allowed`,
  )
  if (!outcome.fits) throw quotaReached('containers')
  if (!outcome.stored) throw missing('Secret')
  return id
}
