import { tokenOf } from '../clients/callers.js'
import { at, idIn } from '../clients/json-answers.js'
import { SUBNET, type TestApi } from '../clients/load-balancer-api.js'

/**
 * A load balancer of the noop provider with an HTTP listener and two pools, and shortcuts for L7 policies and
 * rules.
 */
export async function makeL7Tree(api: TestApi, project?: string) {
  const token = project === undefined ? undefined : tokenOf('member', project)
  const ask = (method: string, path: string, body?: object) => api.ask(method, `/v2/lbaas/${path}`, body, token)
  const created = await ask('POST', 'loadbalancers', {
    loadbalancer: {
      provider: 'noop_driver',
      vip_subnet_id: SUBNET,
      listeners: [{ protocol: 'HTTP', protocol_port: 80 }],
      pools: [
        {
          name: 'one',
          protocol: 'HTTP',
          lb_algorithm: 'ROUND_ROBIN',
          members: [{ address: '10.0.0.1', protocol_port: 1 }],
        },
        { name: 'two', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' },
      ],
    },
  })
  const lb = idIn(created, 'loadbalancer')
  const id = (...path: (string | number)[]) => String(at(created.body, 'loadbalancer', ...path, 'id'))
  const listener = id('listeners', 0)
  await api.apply(lb)
  return {
    lb,
    listener,
    one: id('pools', 0),
    two: id('pools', 1),
    member: id('pools', 0, 'members', 0),
    ask,
    policy: (l7policy: object) => ask('POST', 'l7policies', { l7policy: { listener_id: listener, ...l7policy } }),
    rule: (policy: string, rule: object = { type: 'PATH', compare_type: 'STARTS_WITH', value: '/a' }) =>
      ask('POST', `l7policies/${policy}/rules`, { rule }),
    /** The positions of the listener's policies that are not being deleted, by name. */
    order: async () => {
      const rows = await api
        .database('l7_policy')
        .where({ listener_id: listener })
        .whereNot({ change: 'delete' })
        .orderBy('position')
      return rows.map(({ name, position }): string => `${name}${position}`)
    },
  }
}

export type L7Tree = Awaited<ReturnType<typeof makeL7Tree>>
