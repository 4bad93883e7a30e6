import type { Knex } from 'knex'
import { healthMonitor } from './health-monitors/resource.js'
import { l7Policy } from './l7-policies/resource.js'
import { l7Rule } from './l7-rules/resource.js'
import { listener } from './listeners/resource.js'
import { loadBalancer } from './load-balancers/resource.js'
import { member } from './members/resource.js'
import { pool } from './pools/resource.js'
import type { Resource } from './resource.js'
import { condition, selectObjects } from './select.js'

type Json = Readonly<Record<string, unknown>>

/**
 * The answer to a create: the load balancer with its listeners, policies, rules, pools, members and monitors in full instead of by id.
 * One statement per kind.
 * @returns the JSON text of the whole body
 */
export async function presentTree(database: Knex, id: string): Promise<string> {
  const [top] = await selectObjects(database, loadBalancer, { where: condition('o.id = ?', id) })
  if (top === undefined) throw new Error(`Load balancer ${id} vanished in its own transaction`)
  const balancer: Json = JSON.parse(top.body)
  const below = (resource: Resource) =>
    selectObjects(database, resource, {
      where: condition('o.load_balancer_id = ?', id),
      order: 'o.created_at, o.id',
    }).then(rows => rows.map(({ body }): Json => JSON.parse(body)))
  const listeners = await below(listener)
  const policies = byId(await below(l7Policy))
  const rules = byId(await below(l7Rule))
  const pools = await below(pool)
  const members = byId(await below(member))
  const monitors = byId(await below(healthMonitor))
  return JSON.stringify({
    loadbalancer: {
      ...balancer,
      listeners: listeners.map(({ loadbalancers: _, ...rest }) => ({
        ...rest,
        l7policies: inFull(rest.l7policies, policies).map(made => ({ ...made, rules: inFull(made.rules, rules) })),
      })),
      pools: pools.map(({ loadbalancers: _, healthmonitor_id: monitorId, ...rest }) => ({
        ...rest,
        members: inFull(rest.members, members),
        healthmonitor: withoutPools(monitors.get(monitorId)),
      })),
    },
  })
}

const byId = (objects: readonly Json[]): ReadonlyMap<unknown, Json> => new Map(objects.map(made => [made.id, made]))

/** The objects that a list of references names, in its order. */
const inFull = (references: unknown, objects: ReadonlyMap<unknown, Json>): Json[] =>
  Array.isArray(references) ? references.map(({ id }: Json): Json => objects.get(id) ?? {}) : []

function withoutPools(monitor: Json | undefined): Json | null {
  if (monitor === undefined) return null
  const { pools: _, ...rest } = monitor
  return rest
}
