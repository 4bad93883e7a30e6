import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { badRequest, forbidden } from '../../http/errors.js'
import { isId, missing, requireId } from '../ids.js'
import { LIVE_AUTHORITY } from './authority.js'

/** A CA as a project sees it. */
export type FoundAuthority = {
  id: string
  pluginName: string
  /** Null if every project may use it. */
  ownerId: string | null
  /** Whether this CA is on the project's list of CAs. */
  listed: boolean
  /** Whether the project has such a list. */
  hasList: boolean
  /** Whether it is the preferred CA of that list. */
  preferred: boolean
}

/** SQL of a FoundAuthority over the alias a; `asking.project` is the project. */
const COLUMNS = sql`a.id, a.plugin_name AS "pluginName", a.project_id AS "ownerId", p.ca_id IS NOT NULL AS listed,
  coalesce(p.preferred, false) AS preferred,
  EXISTS (SELECT FROM project_certificate_authority q WHERE q.project_id = asking.project) AS "hasList"`

/** SQL: CAs joined with a project's list. */
const authoritiesFor = (
  projectId: string,
): Fragment => sql`FROM (SELECT ${projectId}::text AS project) asking CROSS JOIN certificate_authority a
  LEFT JOIN project_certificate_authority p ON p.project_id = asking.project AND p.ca_id = a.id`

async function selectAuthority(database: Knex, projectId: string, id: string): Promise<FoundAuthority | undefined> {
  return maybeOne(
    database,
    sql<FoundAuthority>`SELECT ${COLUMNS} ${authoritiesFor(projectId)} WHERE a.id = ${id} AND ${LIVE_AUTHORITY}`,
  )
}

const isForeign = ({ ownerId }: FoundAuthority, projectId: string): boolean => ownerId !== null && ownerId !== projectId

const FOREIGN = 'The certificate authority belongs to another project.'

/**
 * The CA in a path, which may belong to another project.
 * @throws ApiError 404 if there is none
 */
export async function findAuthority(
  database: Knex,
  projectId: string,
  id: string | undefined,
): Promise<FoundAuthority> {
  const found = await selectAuthority(database, projectId, requireId(id, 'Certificate authority'))
  if (found === undefined) throw missing('Certificate authority')
  return found
}

/**
 * The CA in a path.
 * @throws ApiError 404 if there is none, 403 if it belongs to another project
 */
export async function requireAuthority(
  database: Knex,
  projectId: string,
  id: string | undefined,
): Promise<FoundAuthority> {
  const found = await findAuthority(database, projectId, id)
  if (isForeign(found, projectId)) throw forbidden(FOREIGN)
  return found
}

/**
 * The CA in a body.
 * @throws ApiError 400 if there is none, 403 if it belongs to another project
 */
export async function requireNamedAuthority(database: Knex, projectId: string, id: string): Promise<FoundAuthority> {
  const found = isId(id) ? await selectAuthority(database, projectId, id) : undefined
  if (found === undefined) throw badRequest('The certificate authority does not exist.')
  if (isForeign(found, projectId)) throw forbidden(FOREIGN)
  return found
}

/**
 * The CA for orders without a ca_id: the project's preferred one, else the globally preferred one, else the
 * oldest that every project may use.
 */
export async function defaultAuthority(database: Knex, projectId: string): Promise<FoundAuthority | null> {
  const found = await maybeOne(
    database,
    sql<FoundAuthority>`
     SELECT ${COLUMNS} ${authoritiesFor(projectId)} WHERE ${LIVE_AUTHORITY} AND (p.preferred OR a.project_id IS NULL)
      ORDER BY coalesce(p.preferred, false) DESC, a.global_preferred DESC, a.created_at, a.id LIMIT 1`,
  )
  return found ?? null
}

/** As defaultAuthority among the CAs of one back end; null also if the project has a list without that CA. */
export async function usableAuthority(
  database: Knex,
  projectId: string,
  pluginName: string,
): Promise<FoundAuthority | null> {
  const found = await maybeOne(
    database,
    sql<FoundAuthority>`
     SELECT ${COLUMNS} ${authoritiesFor(projectId)}
      WHERE ${LIVE_AUTHORITY} AND a.plugin_name = ${pluginName} AND (p.ca_id IS NOT NULL OR a.project_id IS NULL)
      ORDER BY coalesce(p.preferred, false) DESC, p.ca_id IS NOT NULL DESC, a.global_preferred DESC, a.created_at, a.id LIMIT 1`,
  )
  return found === undefined || (found.hasList && !found.listed) ? null : found
}
