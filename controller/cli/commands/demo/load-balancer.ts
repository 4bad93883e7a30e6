import * as z from 'zod'
import type { ApiClient } from '../../api-client.js'
import { WEB_PORT, type WebServer } from './web-servers.js'

const NAME = 'krater-demo'
const PORT = 80
const HTTPS_PORT = 443

const object = z.object({ id: z.string() })
const loadBalancerSchema = z.object({
  id: z.string(),
  vip_address: z.string(),
  provisioning_status: z.string(),
  operating_status: z.string(),
  fault: z.unknown().optional(),
})
/** A list may hold links besides the objects. */
const lists = z.record(z.string(), z.array(z.unknown()))
const answers = z.record(z.string(), z.unknown())

/** The demo's load balancer. `created` lists the kinds of objects that this run created. */
export type DemoLoadBalancer = { id: string; poolId: string; vipAddress: string; created: string[]; url: string }

const BASE = '/v2.0/lbaas'

type Place = { vipSubnetId: string; memberSubnetId: string; servers: readonly WebServer[] }

/**
 * Creates load balancer, pool, listener, members and health monitor in turn, without waiting for any to become ACTIVE:
 * the API accepts changes while others are in progress. `report` gets each request with its duration.
 */
export async function ensureDemoLoadBalancer(
  api: ApiClient,
  { vipSubnetId, memberSubnetId, servers }: Place,
  report: (line: string, milliseconds: number) => void,
): Promise<DemoLoadBalancer> {
  const { created, ensure } = createEnsurer(api, report)
  const loadBalancer = loadBalancerSchema.parse(
    await ensure(
      { collection: 'loadbalancers', singular: 'loadbalancer' },
      { name: NAME },
      { name: NAME, vip_subnet_id: vipSubnetId, description: 'Created by `krater demo`' },
    ),
  )
  const below = { loadbalancer_id: loadBalancer.id }
  const pool = object.parse(
    await ensure(
      { collection: 'pools', singular: 'pool' },
      { ...below, name: NAME },
      { ...below, name: NAME, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
    ),
  )
  await ensure(
    { collection: 'listeners', singular: 'listener' },
    { ...below, protocol_port: String(PORT) },
    { ...below, name: NAME, protocol: 'HTTP', protocol_port: PORT, default_pool_id: pool.id },
  )
  for (const server of servers) {
    await ensure(
      { collection: 'members', singular: 'member', path: `pools/${pool.id}/members` },
      { address: server.address, protocol_port: String(WEB_PORT) },
      { name: server.name, address: server.address, protocol_port: WEB_PORT, subnet_id: memberSubnetId },
    )
  }
  await ensure(
    { collection: 'healthmonitors', singular: 'healthmonitor' },
    { pool_id: pool.id },
    { pool_id: pool.id, name: NAME, type: 'HTTP', delay: 2, timeout: 1, max_retries: 2, url_path: '/' },
  )
  const { id, vip_address: vipAddress } = loadBalancer
  return { id, poolId: pool.id, vipAddress, created, url: `http://${vipAddress}/` }
}

/** Adds a listener that terminates TLS in front of the same pool. @param ref reference of its certificate */
export async function ensureHttpsListener(
  api: ApiClient,
  { id, poolId, vipAddress }: DemoLoadBalancer,
  ref: string,
  report: (line: string, milliseconds: number) => void,
): Promise<string> {
  const { ensure } = createEnsurer(api, report)
  const place = { loadbalancer_id: id, protocol_port: HTTPS_PORT }
  await ensure(
    { collection: 'listeners', singular: 'listener' },
    { loadbalancer_id: id, protocol_port: String(HTTPS_PORT) },
    {
      ...{ ...place, name: `${NAME}-https`, protocol: 'TERMINATED_HTTPS' },
      ...{ default_pool_id: poolId, default_tls_container_ref: ref },
    },
  )
  return `https://${vipAddress}/`
}

type Kind = { collection: string; singular: string; path?: string }

/** Finds objects by a query or creates them; `created` gets the kind of each new one. */
function createEnsurer(api: ApiClient, report: (line: string, milliseconds: number) => void) {
  const created: string[] = []
  const ensure = async (kind: Kind, query: Record<string, string>, body: Record<string, unknown>): Promise<unknown> => {
    const path = `${BASE}/${kind.path ?? kind.collection}`
    const list = lists.parse(await api.request('load-balancer', 'GET', `${path}?${new URLSearchParams(query)}`))
    const [present] = list[kind.collection] ?? []
    if (present !== undefined) return present
    const started = performance.now()
    const answer = answers.parse(await api.request('load-balancer', 'POST', path, { [kind.singular]: body }))
    report(`POST ${path.replace(/pools\/[^/]+/, 'pools/{id}')}`, performance.now() - started)
    created.push(kind.singular)
    return answer[kind.singular]
  }
  return { created, ensure }
}

export async function showLoadBalancer(api: ApiClient, id: string): Promise<z.output<typeof loadBalancerSchema>> {
  const answer = await api.request('load-balancer', 'GET', `${BASE}/loadbalancers/${id}`)
  return z.object({ loadbalancer: loadBalancerSchema }).parse(answer).loadbalancer
}
