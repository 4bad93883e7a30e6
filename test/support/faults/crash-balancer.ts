import { setTimeout as delay } from 'node:timers/promises'
import { type ApiClient, ApiRefusal } from '../../../controller/cli/api-client.js'
import { ask } from '../../../controller/cli/commands/demo/traffic.js'
import type { Site } from '../services/web-servers.js'

const BASE = '/v2.0/lbaas'
/** Seconds to wait for a result while other tests use the processor. */
const PATIENCE = 180

export type Balancer = { id: string; name: string; url: string; poolId: string }

type Shown = { provisioning_status: string; operating_status: string; fault?: { code: string; text: string } }

/** The actions of the crash tests on load balancers, through the public API alone. */
export function balancersOf(api: ApiClient, vipSubnetId: string) {
  const call = async (method: string, path: string, body?: unknown) =>
    (await api.request('load-balancer', method, `${BASE}${path}`, body)) as Record<string, never>

  const memberOf = ({ address, port, subnetId, name }: Site, weight = 1) => ({
    name,
    address,
    protocol_port: port,
    subnet_id: subnetId,
    weight,
  })

  const show = async (id: string): Promise<Shown | null> => {
    try {
      return (await call('GET', `/loadbalancers/${id}`)).loadbalancer as unknown as Shown
    } catch (error) {
      if (error instanceof ApiRefusal && error.status === 404) return null
      throw error
    }
  }

  /** The load balancer with this name, or null. @throws Error when there are several */
  const find = async (name: string): Promise<Balancer | null> => {
    const { loadbalancers } = (await call('GET', `/loadbalancers?name=${name}`)) as unknown as {
      loadbalancers: { id: string; vip_address: string; listeners: unknown[]; pools: { id: string }[] }[]
    }
    if (loadbalancers.length > 1) throw new Error(`${loadbalancers.length} load balancers are called ${name}`)
    const [found] = loadbalancers
    if (found === undefined) return null
    const poolId = found.pools[0]?.id
    if (poolId === undefined || found.listeners.length !== 1) throw new Error(`only part of ${name} was stored`)
    return { id: found.id, name, poolId, url: `http://${found.vip_address}/` }
  }

  return {
    show,
    find,

    /** Creates a whole tree in one request. @param options of its pool */
    create: async (name: string, sites: readonly Site[], options: object = {}): Promise<Balancer> => {
      const members = sites.map(site => memberOf(site))
      const pool = { name, protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', members, ...options }
      const listener = { name, protocol: 'HTTP', protocol_port: 80, default_pool: pool }
      const loadbalancer = { name, vip_subnet_id: vipSubnetId, listeners: [listener] }
      await call('POST', '/loadbalancers', { loadbalancer })
      const found = await find(name)
      if (found === null) throw new Error(`${name} was created but does not exist`)
      return found
    },

    /** Sets all members of the pool at once. */
    setMembers: async ({ poolId }: Balancer, sites: readonly Site[], weight = 1): Promise<void> => {
      await call('PUT', `/pools/${poolId}/members`, { members: sites.map(site => memberOf(site, weight)) })
    },

    remove: async ({ id }: Pick<Balancer, 'id'>): Promise<void> => {
      await call('DELETE', `/loadbalancers/${id}?cascade=true`)
    },

    /**
     * Waits until the load balancer is ACTIVE and each of the sites, and nothing else, answers through its VIP.
     * @returns the milliseconds that it took @throws Error when it took longer
     */
    untilServing: async ({ id, url }: Balancer, sites: readonly Site[]): Promise<number> => {
      const started = performance.now()
      const desired = sites.map(site => site.name).sort()
      for (;;) {
        const shown = await show(id)
        const answers = await answersOf(url, desired.length * 2)
        if (shown?.provisioning_status === 'ACTIVE' && String(answers) === String(desired))
          return performance.now() - started
        if (performance.now() - started > PATIENCE * 1000) {
          throw new Error(`Not within ${PATIENCE} s: ${JSON.stringify({ id, ...shown, answers, desired })}`)
        }
        await delay(100)
      }
    },

    untilGone: async ({ id }: Pick<Balancer, 'id'>): Promise<number> => {
      const started = performance.now()
      for (;;) {
        const shown = await show(id)
        if (shown === null) return performance.now() - started
        if (performance.now() - started > PATIENCE * 1000)
          throw new Error(`Not gone within ${PATIENCE} s: ${JSON.stringify(shown)}`)
        await delay(100)
      }
    },
  }
}

/** The members that answered, each once. Each fault counts as one more. */
async function answersOf(url: string, requests: number): Promise<string[]> {
  const replies = await Promise.all(Array.from({ length: requests }, () => ask(url)))
  const words = replies.map(reply =>
    reply === null ? 'nobody' : reply.status === 200 ? reply.body : `${reply.status}`,
  )
  return [...new Set(words)].sort()
}
