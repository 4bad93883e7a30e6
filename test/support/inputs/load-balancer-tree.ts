import { at, idIn } from '../clients/json-answers.js'
import { SUBNET, type TestApi } from '../clients/load-balancer-api.js'

/** A load balancer with a listener, its pool, a monitor and a member, all applied unless told otherwise. */
export async function makeTree(api: TestApi, applied = true) {
  const created = await api.ask('POST', '/v2/lbaas/loadbalancers', {
    loadbalancer: {
      name: 'tree',
      vip_subnet_id: SUBNET,
      listeners: [
        {
          protocol: 'HTTP',
          protocol_port: 80,
          default_pool: {
            name: 'pool',
            protocol: 'HTTP',
            lb_algorithm: 'ROUND_ROBIN',
            members: [{ address: '10.0.0.1', protocol_port: 80 }],
            healthmonitor: { type: 'HTTP', delay: 5, timeout: 3, max_retries: 2 },
          },
        },
      ],
    },
  })
  const lb = idIn(created, 'loadbalancer')
  if (applied) await api.apply(lb)
  const id = (...path: (string | number)[]) => String(at(created.body, 'loadbalancer', ...path, 'id'))
  return {
    lb,
    listener: id('listeners', 0),
    pool: id('pools', 0),
    member: id('pools', 0, 'members', 0),
    monitor: id('pools', 0, 'healthmonitor'),
  }
}

export type Tree = Awaited<ReturnType<typeof makeTree>>

/** provisioning_status of each object, `gone` if it is not found. */
export async function statuses(api: TestApi, tree: Tree): Promise<Record<keyof Tree, string>> {
  const paths = {
    lb: `loadbalancers/${tree.lb}`,
    listener: `listeners/${tree.listener}`,
    pool: `pools/${tree.pool}`,
    member: `pools/${tree.pool}/members/${tree.member}`,
    monitor: `healthmonitors/${tree.monitor}`,
  }
  const found = { lb: '', listener: '', pool: '', member: '', monitor: '' }
  for (const name of Object.keys(paths) as (keyof Tree)[]) {
    const { status, body } = await api.ask('GET', `/v2/lbaas/${paths[name]}`)
    found[name] = status === 404 ? 'gone' : String(at(Object.values(body)[0], 'provisioning_status'))
  }
  return found
}

export const expected = (lb: string, listener: string, pool: string, member: string, monitor: string) => ({
  lb,
  listener,
  pool,
  member,
  monitor,
})
