import type { Knex } from 'knex'
import { sql } from '../../database/sql.js'
import { healthMonitor } from '../objects/health-monitors/resource.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { l7Rule } from '../objects/l7-rules/resource.js'
import { listener } from '../objects/listeners/resource.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { member } from '../objects/members/resource.js'
import { pool } from '../objects/pools/resource.js'
import type { Resource } from '../schema/resource.js'
import { selectObjects, withKey, wrapped } from '../schema/select.js'

type Json = Readonly<Record<string, unknown>>

/**
 * The response to a create: the load balancer with its listeners, policies, rules, pools, members and health
 * monitors in full, not as ids. One statement per kind.
 * @returns JSON text of the body
 */
export async function presentTree(database: Knex, id: string): Promise<string> {
  const [top] = await selectObjects(database, loadBalancer, { where: sql`o.id = ${id}` })
  if (top === undefined) throw new Error(`Load balancer ${id} vanished in its own transaction`)
  const balancer: Json = JSON.parse(top.body)
  const below = (resource: Resource) =>
    selectObjects(database, resource, {
      where: sql`o.load_balancer_id = ${id}`,
      order: sql`o.created_at, o.id`,
    }).then(rows => rows.map(({ body }): Json => JSON.parse(body)))
  const listeners = await below(listener)
  const policies = byId(await below(l7Policy))
  const rules = byId(await below(l7Rule))
  const pools = await below(pool)
  const members = await membersByPool(database, id)
  const monitors = byId(await below(healthMonitor))
  const poolTexts = pools.map(({ loadbalancers: _, healthmonitor_id: monitorId, members: __, ...rest }) =>
    withKey(
      JSON.stringify({ ...rest, healthmonitor: withoutPools(monitors.get(monitorId)) }),
      'members',
      listed(members.get(rest.id) ?? []),
    ),
  )
  const listenersInFull = listeners.map(({ loadbalancers: _, ...rest }) => ({
    ...rest,
    l7policies: inFull(rest.l7policies, policies).map(made => ({ ...made, rules: inFull(made.rules, rules) })),
  }))
  const { pools: _, ...above } = balancer
  const text = JSON.stringify({ ...above, listeners: listenersInFull })
  return wrapped(loadBalancer.singular, withKey(text, 'pools', listed(poolTexts)))
}

/** There may be thousands of members, so their JSON stays as written by PostgreSQL. */
async function membersByPool(database: Knex, loadBalancerId: string): Promise<ReadonlyMap<unknown, string[]>> {
  const rows = await selectObjects<string>(database, member, {
    where: sql`o.load_balancer_id = ${loadBalancerId}`,
    order: sql`o.created_at, o.id`,
    extra: sql`o.pool_id`,
  })
  const members = new Map<unknown, string[]>()
  for (const { body, extra } of rows) {
    const ofPool = members.get(extra)
    if (ofPool === undefined) members.set(extra, [body])
    else ofPool.push(body)
  }
  return members
}

const listed = (texts: readonly string[]): string => `[${texts.join(',')}]`

const byId = (objects: readonly Json[]): ReadonlyMap<unknown, Json> => new Map(objects.map(made => [made.id, made]))

/** Replaces a list of references by the objects, in the same order. */
const inFull = (references: unknown, objects: ReadonlyMap<unknown, Json>): Json[] =>
  Array.isArray(references) ? references.map(({ id }: Json): Json => objects.get(id) ?? {}) : []

function withoutPools(monitor: Json | undefined): Json | null {
  if (monitor === undefined) return null
  const { pools: _, ...rest } = monitor
  return rest
}
