import type { Knex } from 'knex'
import { execute, maybeOne, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'

/**
 * The group of a project's ports that name none. The first use makes it: it admits what its own ports send to each
 * other, and lets them send everywhere. @returns its ID
 */
export async function ensureDefaultGroup(database: Knex, projectId: string): Promise<string> {
  const find = sql<{ id: string }>`SELECT id FROM security_group WHERE project_id = ${projectId} AND is_default`
  const found = await maybeOne(database, find)
  if (found !== undefined) return found.id
  await execute(
    database,
    sql`WITH made AS (
          INSERT INTO security_group (project_id, name, description, is_default)
          VALUES (${projectId}, 'default', 'Default security group', true)
          ON CONFLICT (project_id) WHERE is_default DO NOTHING RETURNING id, project_id)
        INSERT INTO security_group_rule (project_id, security_group_id, direction, ethertype, remote_group_id)
        SELECT made.project_id, made.id, rule.direction, rule.ethertype, CASE rule.direction WHEN 'ingress' THEN made.id END
          FROM made, (VALUES ('egress', 'IPv4'), ('egress', 'IPv6'), ('ingress', 'IPv4'), ('ingress', 'IPv6'))
            AS rule (direction, ethertype)`,
  )
  return (await one(database, find)).id
}
