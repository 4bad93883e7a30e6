import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'

/** A project for which the key manager holds something: how many live objects of each kind; all 0 when it is a key, a setting or a consumer only. */
export type HeldProject = { projectId: string; secrets: number; containers: number; orders: number }

/** Every project for which there is something that `eraseProject` would remove, by its id. */
export async function heldProjects(database: Database): Promise<HeldProject[]> {
  // project_key has '' for the service's own keys, certificate_authority has null for those that belong to nobody.
  return many(
    database,
    sql<HeldProject>`
    SELECT project_id AS "projectId", sum(secrets)::int AS secrets, sum(containers)::int AS containers, sum(orders)::int AS orders
      FROM (SELECT project_id, 1 AS secrets, 0 AS containers, 0 AS orders FROM secret WHERE deleted_at IS NULL
            UNION ALL SELECT project_id, 0, 1, 0 FROM container WHERE deleted_at IS NULL
            UNION ALL SELECT project_id, 0, 0, 1 FROM secret_order WHERE deleted_at IS NULL
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_key
            UNION ALL SELECT project_id, 0, 0, 0 FROM certificate_authority
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_quota
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_secret_store
            UNION ALL SELECT project_id, 0, 0, 0 FROM secret_consumer
            UNION ALL SELECT project_id, 0, 0, 0 FROM container_consumer
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_certificate_authority) held
     WHERE project_id <> ''
     GROUP BY project_id ORDER BY project_id`,
  )
}
