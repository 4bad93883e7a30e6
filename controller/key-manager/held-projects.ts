import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { sql } from '../database/sql.js'

/** Live objects of a project, by kind. All are 0 when only a key, a setting or a consumer is left. */
export type HeldProject = { projectId: string; secrets: number; containers: number; orders: number }

/** Every project that `eraseProject` would find something of, ordered by id. */
export async function listHeldProjects(database: Database): Promise<HeldProject[]> {
  // The service's own keys have the project '' in project_key; CAs without a project have null in
  // certificate_authority.
  return many(
    database,
    sql<HeldProject>`
    SELECT project_id AS "projectId", sum(secrets)::int AS secrets, sum(containers)::int AS containers, sum(orders)::int AS orders
      FROM (SELECT project_id, 1 AS secrets, 0 AS containers, 0 AS orders FROM secret WHERE deleted_at IS NULL
            UNION ALL SELECT project_id, 0, 1, 0 FROM container WHERE deleted_at IS NULL
            UNION ALL SELECT project_id, 0, 0, 1 FROM secret_order WHERE deleted_at IS NULL
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_key
            UNION ALL SELECT project_id, 0, 0, 0 FROM certificate_authority
            UNION ALL SELECT project_id, 0, 0, 0 FROM acme_binding_key
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_quota
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_secret_store
            UNION ALL SELECT project_id, 0, 0, 0 FROM secret_consumer
            UNION ALL SELECT project_id, 0, 0, 0 FROM container_consumer
            UNION ALL SELECT project_id, 0, 0, 0 FROM project_certificate_authority) held
     WHERE project_id <> ''
     GROUP BY project_id ORDER BY project_id`,
  )
}
