import type { Knex } from 'knex'
import * as z from 'zod'
import type { CertificateFacts } from '../../../x509/material/assemble.js'
import type { MaterialKind } from '../../../x509/material/load.js'
import type { Target } from '../../../x509/material/reference.js'
import { many } from '../../database/query.js'
import { type Fragment, identifier, sql, trusted } from '../../database/sql.js'
import { conflict } from '../../http/errors.js'

/** A load balancer, as its bindings name it. */
export type BoundLoadBalancer = {
  id: string
  /** The project of the load balancer. */
  projectId: string
  /** The URL of the load balancer, which consumers of containers show. */
  url: string
}

/** What an inspection found of one kind of material. */
export type BoundMaterial = { digest: string; facts: CertificateFacts | null }

/** What a load balancer uses, with what was found of it. */
export type Bound = { target: Target; material: Partial<Record<MaterialKind, BoundMaterial>> }

/** What was found of one version of an object. A renewal makes the next version of a container. */
export type Inspected = Bound & { version: number }

/** Secrets and containers have consumers of different shapes. Their SQL is built from this. */
export const OWNERS = {
  secrets: {
    owner: 'secret',
    live: trusted('o.deleted_at IS NULL AND (o.expiration IS NULL OR o.expiration > now())'),
    /** A payload never changes. */
    version: trusted('1'),
    /** The columns that identify a consumer, and their values for a load balancer. */
    columns: ['service', 'resource_type', 'resource_id'],
    values: ({ id }: BoundLoadBalancer) => ['load-balancer', 'loadbalancers', id],
  },
  containers: {
    owner: 'container',
    live: trusted('o.deleted_at IS NULL'),
    version: trusted('o.version'),
    columns: ['name', 'url'],
    values: ({ url }: BoundLoadBalancer) => ['load-balancer', url],
  },
} as const satisfies Record<Target['kind'], unknown>

/** The URL of a load balancer is shown to whoever may see its certificate. */
export const loadBalancerUrl = z.url({ protocol: /^https?$/ }).max(255)

/**
 * SQL: a binding (alias c) of the object with alias o gives its load balancer the right to read it. An object of another
 * project must still have the user in its ACL who bound it.
 */
export const BINDS = sql`c.load_balancer_id IS NOT NULL AND (o.project_id = c.project_id OR c.user_id = ANY(o.acl_users))`

/**
 * Refuses to delete what a load balancer uses. Call it with the object's row locked: whoever binds it waits for the
 * lock.
 * @throws ApiError 409 that lists the load balancers
 */
export async function requireUnbound(database: Knex, kind: Target['kind'], id: string): Promise<void> {
  const { owner } = OWNERS[kind]
  const users = await many(
    database,
    sql<{ loadBalancerId: string }>`
      SELECT c.load_balancer_id AS "loadBalancerId" FROM ${consumersOf(owner)} c JOIN ${identifier(owner)} o ON o.id = c.${identifier(`${owner}_id`)}
       WHERE o.id = ${id} AND ${BINDS} ORDER BY c.created_at, c.id`,
  )
  if (users.length === 0) return
  const listed = users.slice(0, MAX_LISTED).map(({ loadBalancerId }) => loadBalancerId)
  const more = users.length > MAX_LISTED ? ` and ${users.length - MAX_LISTED} more` : ''
  const plural = users.length > 1 ? 's' : ''
  throw conflict(
    `The ${owner} is in use by load balancer${plural} ${listed.join(', ')}${more}. Let ${plural ? 'them' : 'it'} use another one first.`,
  )
}

const MAX_LISTED = 20

export const consumersOf = (owner: 'secret' | 'container'): Fragment => identifier(`${owner}_consumer`)
