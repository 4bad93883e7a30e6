import * as z from 'zod'
import { type ApiClient, ApiRefusal } from '../../api-client.js'
import { OperatorError } from '../../operator-error.js'
import {
  type Facts,
  type Kind,
  type LoadBalancer,
  listenerSchema,
  loadBalancerSchema,
  type Member,
  memberSchema,
  monitorSchema,
  policySchema,
  poolSchema,
} from './facts.js'

const BASE = '/v2/lbaas'
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

type Found = { kind: Kind; id: string; loadBalancerId: string }

const COLLECTIONS: readonly { kind: Kind; collection: string }[] = [
  { kind: 'load balancer', collection: 'loadbalancers' },
  { kind: 'listener', collection: 'listeners' },
  { kind: 'pool', collection: 'pools' },
  { kind: 'health monitor', collection: 'healthmonitors' },
  { kind: 'L7 policy', collection: 'l7policies' },
]

/** Reads the load balancer of the named object and everything below it, with the caller's rights. @throws OperatorError */
export async function gather(api: ApiClient, named: string): Promise<Facts> {
  const [found, ...others] = mostOf(await find(api, named))
  if (found === undefined)
    throw new OperatorError(
      `There is no load balancer, and no object of one, called ${named}. \`openstack loadbalancer list\` lists what these credentials can see.`,
      2,
    )
  if (others.length > 0) {
    const lines = [found, ...others].map(({ kind, id }) => `  ${kind} ${id}`)
    throw new OperatorError(`Several objects are called ${named}; give an id:\n${lines.join('\n')}`, 2)
  }
  const below = { loadbalancer_id: found.loadBalancerId }
  const [loadBalancer] = await list(api, 'loadbalancers', loadBalancerSchema, { id: found.loadBalancerId })
  if (loadBalancer === undefined) throw new OperatorError('The load balancer has just been deleted.')
  const [listeners, pools, monitors, policies] = await Promise.all([
    list(api, 'listeners', listenerSchema, below),
    list(api, 'pools', poolSchema, below),
    list(api, 'healthmonitors', monitorSchema),
    list(api, 'l7policies', policySchema),
  ])
  const everyMember: Member[][] = []
  for (const { id } of pools) everyMember.push(await list(api, 'members', memberSchema, {}, `pools/${id}/members`))
  const ids = new Set(listeners.map(({ id }) => id))
  return {
    loadBalancer,
    listeners,
    policies: policies.filter(({ listener_id }) => ids.has(listener_id)),
    pools: pools.map((pool, at) => ({
      ...pool,
      everyMember: everyMember[at] ?? [],
      monitor: monitors.find(monitor => monitor.pools.some(({ id }) => id === pool.id)) ?? null,
    })),
    requestedAt: await requestedAt(api, loadBalancer),
    focus: { kind: found.kind, id: found.id },
    now: new Date().toISOString(),
  }
}

/** Of a load balancer and objects of its own with the same name, the load balancer: it explains them too. */
function mostOf(found: readonly Found[]): readonly Found[] {
  const [first] = found
  const isWhole = first?.kind === 'load balancer' && found.every(({ loadBalancerId }) => loadBalancerId === first.id)
  return isWhole ? [first] : found
}

const parents = z.object({
  id: z.string(),
  loadbalancers: z.array(z.object({ id: z.string() })).optional(),
  pools: z.array(z.object({ id: z.string() })).optional(),
  listener_id: z.string().optional(),
})

async function find(api: ApiClient, named: string): Promise<Found[]> {
  const filter: Record<string, string> = UUID.test(named) ? { id: named } : { name: named }
  const found: Found[] = []
  for (const { kind, collection } of COLLECTIONS) {
    for (const object of await list(api, collection, parents, filter)) {
      found.push({ kind, id: object.id, loadBalancerId: await ownerOf(api, kind, object) })
    }
  }
  return found.length > 0 ? found : [...(await findMembers(api, filter)), ...(await findAmphora(api, named))]
}

async function ownerOf(api: ApiClient, kind: Kind, object: z.output<typeof parents>): Promise<string> {
  if (kind === 'load balancer') return object.id
  const above =
    kind === 'health monitor'
      ? await list(api, 'pools', parents, { id: object.pools?.[0]?.id ?? '' })
      : kind === 'L7 policy'
        ? await list(api, 'listeners', parents, { id: object.listener_id ?? '' })
        : [object]
  const id = above[0]?.loadbalancers?.[0]?.id
  if (id === undefined) throw new OperatorError(`The ${kind} ${object.id} has just been deleted.`)
  return id
}

/** Members have no list of their own: the pools name them. */
async function findMembers(api: ApiClient, filter: Readonly<Record<string, string>>): Promise<Found[]> {
  const pools = await list(api, 'pools', poolSchema)
  const found: Found[] = []
  for (const { id: poolId, members, loadbalancers } of pools) {
    if (filter.id !== undefined && !members.some(({ id }) => id === filter.id)) continue
    for (const { id } of await list(api, 'members', memberSchema, filter, `pools/${poolId}/members`)) {
      found.push({ kind: 'member', id, loadBalancerId: loadbalancers[0]?.id ?? '' })
    }
  }
  return found
}

/** Only administrators see amphorae. */
async function findAmphora(api: ApiClient, id: string): Promise<Found[]> {
  if (!UUID.test(id)) return []
  const answer = await api.request('load-balancer', 'GET', `/v2/octavia/amphorae/${id}`).catch(error => {
    if (error instanceof ApiRefusal && [403, 404].includes(error.status)) return null
    throw error
  })
  const read = z.object({ amphora: z.object({ loadbalancer_id: z.string().nullable() }) }).safeParse(answer)
  const owner = read.data?.amphora.loadbalancer_id ?? null
  return owner === null ? [] : [{ kind: 'load balancer', id: owner, loadBalancerId: owner }]
}

async function requestedAt(api: ApiClient, { id, provisioning_status: status }: LoadBalancer): Promise<string | null> {
  if (!status.startsWith('PENDING_')) return null
  const path = `${BASE}/loadbalancers/${id}/events?kind=requested&limit=1`
  const { events } = requested.parse(await api.request('load-balancer', 'GET', path))
  return events[0]?.created_at ?? null
}

const requested = z.object({ events: z.array(z.object({ created_at: z.string() })) })

/** Every page of a list. */
async function list<T>(
  api: ApiClient,
  plural: string,
  schema: z.ZodType<T>,
  filter: Readonly<Record<string, string>> = {},
  path = plural,
): Promise<T[]> {
  const page = z.object({
    [plural]: z.array(schema),
    [`${plural}_links`]: z.array(z.object({ rel: z.string(), href: z.string() })).default([]),
  })
  const objects: T[] = []
  let query = new URLSearchParams(filter).toString()
  for (;;) {
    const answer = page.parse(await api.request('load-balancer', 'GET', `${BASE}/${path}?${query}`))
    objects.push(...((answer[plural] ?? []) as T[]))
    const next = (answer[`${plural}_links`] as { rel: string; href: string }[]).find(({ rel }) => rel === 'next')
    if (next === undefined) return objects
    query = new URL(next.href).search.slice(1)
  }
}
