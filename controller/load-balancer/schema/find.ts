import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { sql, trusted } from '../../database/sql.js'
import { missing } from './faults.js'
import { columnNames, type Resource } from './resource.js'
import { authorise, type Requester, type Right } from './rights.js'
import { childStatus, loadBalancerStatus } from './status.js'
import { canonicalUuid } from './values.js'

/** A row as a write reads it before it locks the load balancer. */
export type Found<Columns = unknown> = Columns & {
  id: string
  project_id: string
  load_balancer_id: string
  provider: string
  change: string
  provisioning_status: string
}

/**
 * Looks up the object that a request names, in any project.
 * @param id as the client sent it
 */
export async function lookUp<Columns = unknown>(
  database: Knex,
  resource: Resource,
  id: string,
): Promise<Found<Columns> | undefined> {
  const uuid = canonicalUuid(id)
  if (uuid === null) return undefined
  const columns = columnNames(resource)
    .map(name => `o.${name}`)
    .join(', ')
  const parent =
    resource.table === 'load_balancer'
      ? `o.id AS load_balancer_id, o.provider, ${loadBalancerStatus('o')} AS provisioning_status`
      : `o.load_balancer_id, lb.provider, ${childStatus('o')} AS provisioning_status`
  return maybeOne(
    database,
    sql<Found<Columns>>`
      SELECT ${trusted(`o.id, o.project_id, o.change, ${parent}, ${columns} FROM ${resource.source}`)} WHERE o.id = ${uuid}`,
  )
}

/** The same, for an object that must exist. @throws ApiError 404 */
export async function findObject<Columns = unknown>(
  database: Knex,
  resource: Resource,
  id: string,
): Promise<Found<Columns>> {
  const found = await lookUp<Columns>(database, resource, id)
  if (found === undefined) throw missing(resource.label, id)
  return found
}

/**
 * Finds the object that a body names as the parent of a new one.
 * @throws ApiError 404, or 403 when the caller lacks the right on it
 */
export async function findParent<Columns = unknown>(
  database: Knex,
  resource: Resource,
  id: string,
  caller: Requester,
  right: Right,
): Promise<Found<Columns>> {
  const found = await findObject<Columns>(database, resource, id)
  authorise(caller, right, found.project_id)
  return found
}

/** True for an object under deletion without a fault; another delete of it is a no-op. */
export const isBeingDeleted = ({ change, provisioning_status }: Found): boolean =>
  change === 'delete' && provisioning_status !== 'ERROR'
