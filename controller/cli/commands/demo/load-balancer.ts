import { z } from 'zod'
import type { ApiClient } from '../../api-client.js'
import { WEB_PORT, type WebServer } from './web-servers.js'

const NAME = 'krater-demo'
const PORT = 80

const object = z.object({ id: z.string() })
const loadBalancerSchema = z.object({
  id: z.string(),
  vip_address: z.string(),
  provisioning_status: z.string(),
  operating_status: z.string(),
  fault: z.unknown().optional(),
})
/** What carries the demonstration, found by its name or made; every call goes through the public API. */
export type DemoLoadBalancer = { id: string; vipAddress: string; made: string[]; url: string }

const BASE = '/v2.0/lbaas'

/**
 * Load balancer, listener, pool, members and monitor, each one after the other without waiting: changes are accepted while another is under
 * way. `report` hears each request with its time.
 */
export async function ensureDemoLoadBalancer(
  api: ApiClient,
  {
    vipSubnetId,
    memberSubnetId,
    servers,
  }: { vipSubnetId: string; memberSubnetId: string; servers: readonly WebServer[] },
  report: (line: string, milliseconds: number) => void,
): Promise<DemoLoadBalancer> {
  const made: string[] = []
  const ensure = async (
    kind: { collection: string; singular: string; path?: string },
    query: Record<string, string>,
    body: Record<string, unknown>,
  ): Promise<unknown> => {
    const path = `${BASE}/${kind.path ?? kind.collection}`
    const list = (await api.request('load-balancer', 'GET', `${path}?${new URLSearchParams(query)}`)) as Record<
      string,
      unknown[]
    >
    const [present] = list[kind.collection] ?? []
    if (present !== undefined) return present
    const started = performance.now()
    const answer = (await api.request('load-balancer', 'POST', path, { [kind.singular]: body })) as Record<
      string,
      unknown
    >
    report(`POST ${path.replace(/pools\/[^/]+/, 'pools/{id}')}`, performance.now() - started)
    made.push(kind.singular)
    return answer[kind.singular]
  }

  const loadBalancer = loadBalancerSchema.parse(
    await ensure(
      { collection: 'loadbalancers', singular: 'loadbalancer' },
      { name: NAME },
      { name: NAME, vip_subnet_id: vipSubnetId, description: 'Made by `krater demo`' },
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
  return {
    id: loadBalancer.id,
    vipAddress: loadBalancer.vip_address,
    made,
    url: `http://${loadBalancer.vip_address}/`,
  }
}

export async function showLoadBalancer(api: ApiClient, id: string): Promise<z.output<typeof loadBalancerSchema>> {
  const { loadbalancer } = (await api.request('load-balancer', 'GET', `${BASE}/loadbalancers/${id}`)) as {
    loadbalancer: unknown
  }
  return loadBalancerSchema.parse(loadbalancer)
}
