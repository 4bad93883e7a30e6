import t, { type Test } from 'tap'
import { FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'
import { at, type Json, type Reply } from '../../support/clients/json-answers.js'
import { NOWHERE } from '../../support/database/load-balancer-keys.js'
import { startApiOnNetworks } from '../../support/worlds/local-networks.js'

/** Two projects, each with a network and a tree. */
async function startTwoProjects(t: Test) {
  const { api, networks } = await startApiOnNetworks()
  t.teardown(api.stop)
  const worldOf = async (project: string) => {
    const network = await networks.network(project, '10.7.0.0/24', '2001:db8:7::/64')
    const [subnet, other] = network.subnets as [string, string]
    const port = await networks.port(project, network.id, [subnet])
    const created = await api.ask(
      'POST',
      '/v2/lbaas/loadbalancers',
      {
        loadbalancer: {
          vip_subnet_id: subnet,
          listeners: [
            { protocol: 'HTTP', protocol_port: 80, default_pool: poolOf([{ address: '10.7.0.9', protocol_port: 80 }]) },
          ],
          pools: [{ ...poolOf([]), name: 'free' }],
        },
      },
      tokenOf('member', project),
    )
    const id = (...path: (string | number)[]) => String(at(created.body, 'loadbalancer', ...path, 'id'))
    const pools = at(created.body, 'loadbalancer', 'pools') as Json[]
    const [used, free] = [pools.find(({ name }) => name === 'p'), pools.find(({ name }) => name === 'free')]
    const spare = await api.ask(
      'POST',
      '/v2/lbaas/listeners',
      { listener: { loadbalancer_id: id(), protocol: 'HTTP', protocol_port: 81 } },
      tokenOf('member', project),
    )
    return {
      network: network.id,
      subnet,
      other,
      port,
      lb: id(),
      listener: id('listeners', 0),
      spare: String(at(spare.body, 'listener', 'id')),
      pool: String(used?.id),
      free: String(free?.id),
      member: String(at(used?.members, 0, 'id')),
    }
  }
  return { api, own: await worldOf(OWN), foreign: await worldOf(FOREIGN) }
}

const poolOf = (members: object[]) => ({ name: 'p', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN', members })

/** The field and request of each parent, as far as the list below has it. */
const PARENTS = [
  'loadbalancer_id POST listeners',
  'loadbalancer_id POST pools',
  'listener_id POST pools',
  'pool_id POST healthmonitors',
]

t.test('another project’s object in a body looks as if it did not exist, unless it is the parent', async t => {
  const { api, own, foreign } = await startTwoProjects(t)
  const monitor = { type: 'TCP', delay: 1, timeout: 1, max_retries: 1 }
  const http = { protocol: 'HTTP', protocol_port: 82 }
  const member = (subnet_id: string) => ({ address: '10.7.0.77', protocol_port: 82, subnet_id })
  /** Field, status, label in the text, the foreign object, and the request that names it. */
  const references: [string, number, string, keyof typeof foreign, string, (id: string) => object][] = [
    ['vip_subnet_id', 400, 'Subnet', 'subnet', 'POST loadbalancers', id => ({ loadbalancer: { vip_subnet_id: id } })],
    [
      'vip_network_id',
      400,
      'Network',
      'network',
      'POST loadbalancers',
      id => ({ loadbalancer: { vip_network_id: id } }),
    ],
    [
      'vip_subnet_id with a network',
      400,
      'Subnet',
      'subnet',
      'POST loadbalancers',
      id => ({ loadbalancer: { vip_network_id: own.network, vip_subnet_id: id } }),
    ],
    ['vip_port_id', 400, 'Port', 'port', 'POST loadbalancers', id => ({ loadbalancer: { vip_port_id: id } })],
    [
      'additional_vips',
      400,
      'Subnet',
      'other',
      'POST loadbalancers',
      id => ({ loadbalancer: { vip_subnet_id: own.subnet, additional_vips: [{ subnet_id: id }] } }),
    ],
    [
      'additional_vips of a port',
      400,
      'Subnet',
      'other',
      'POST loadbalancers',
      id => ({ loadbalancer: { vip_port_id: own.port, additional_vips: [{ subnet_id: id }] } }),
    ],
    [
      'subnet_id of a member in a tree',
      400,
      'Subnet',
      'subnet',
      'POST loadbalancers',
      id => ({ loadbalancer: { vip_subnet_id: own.subnet, pools: [poolOf([member(id)])] } }),
    ],
    [
      'subnet_id of a member below a listener in a tree',
      400,
      'Subnet',
      'subnet',
      'POST loadbalancers',
      id => ({
        loadbalancer: { vip_subnet_id: own.subnet, listeners: [{ ...http, default_pool: poolOf([member(id)]) }] },
      }),
    ],
    [
      'default_pool_id in a tree',
      404,
      'Pool',
      'pool',
      'POST loadbalancers',
      id => ({ loadbalancer: { vip_subnet_id: own.subnet, listeners: [{ ...http, default_pool_id: id }] } }),
    ],
    [
      'loadbalancer_id',
      404,
      'Load Balancer',
      'lb',
      'POST listeners',
      id => ({ listener: { ...http, loadbalancer_id: id } }),
    ],
    [
      'default_pool_id',
      404,
      'Pool',
      'pool',
      'POST listeners',
      id => ({ listener: { ...http, loadbalancer_id: own.lb, default_pool_id: id } }),
    ],
    [
      'subnet_id of a member in a listener',
      400,
      'Subnet',
      'subnet',
      'POST listeners',
      id => ({ listener: { ...http, loadbalancer_id: own.lb, default_pool: poolOf([member(id)]) } }),
    ],
    [
      'default_pool_id',
      404,
      'Pool',
      'pool',
      `PUT listeners/${own.spare}`,
      id => ({ listener: { default_pool_id: id } }),
    ],
    [
      'loadbalancer_id',
      404,
      'Load Balancer',
      'lb',
      'POST pools',
      id => ({ pool: { ...poolOf([]), loadbalancer_id: id } }),
    ],
    ['listener_id', 404, 'Listener', 'spare', 'POST pools', id => ({ pool: { ...poolOf([]), listener_id: id } })],
    [
      'listener_id with a load balancer',
      404,
      'Listener',
      'spare',
      'POST pools',
      id => ({ pool: { ...poolOf([]), loadbalancer_id: own.lb, listener_id: id } }),
    ],
    [
      'subnet_id of a member in a pool',
      400,
      'Subnet',
      'subnet',
      'POST pools',
      id => ({ pool: { ...poolOf([member(id)]), loadbalancer_id: own.lb } }),
    ],
    ['subnet_id', 400, 'Subnet', 'subnet', `POST pools/${own.pool}/members`, id => ({ member: member(id) })],
    [
      'subnet_id in a batch',
      400,
      'Subnet',
      'subnet',
      `PUT pools/${own.pool}/members`,
      id => ({ members: [member(id)] }),
    ],
    ['pool_id', 404, 'Pool', 'free', 'POST healthmonitors', id => ({ healthmonitor: { ...monitor, pool_id: id } })],
  ]
  for (const [field, status, label, kind, request, bodyOf] of references) {
    const [method, path] = request.split(' ') as [string, string]
    const ask = (id: string, token?: string): Promise<Reply> => api.ask(method, `/v2/lbaas/${path}`, bodyOf(id), token)
    const [missing, hidden] = [await ask(NOWHERE), await ask(foreign[kind])]
    t.equal(missing.status, status, `${field} ${request}: ${missing.text}`)
    t.equal(at(missing.body, 'faultstring'), `${label} ${NOWHERE} not found.`, `${field} ${request}`)
    if (PARENTS.includes(`${field} ${request}`)) {
      t.equal(hidden.status, 403, `${field} ${request}: ${hidden.text}`)
      continue
    }
    t.equal(hidden.status, missing.status, `${field} ${request}: ${hidden.text}`)
    t.equal(hidden.text.replaceAll(foreign[kind], NOWHERE), missing.text, `${field} ${request}`)
  }
  t.equal((await api.database('load_balancer').count().first())?.count, 2, 'no refused request creates a load balancer')

  await t.test('a caller who may see the object but not use it gets 403', async t => {
    const body = { listener: { ...http, loadbalancer_id: foreign.lb } }
    const ask = async (token: string) => (await api.ask('POST', '/v2/lbaas/listeners', body, token)).status
    t.equal(await ask(tokenOf('load-balancer_global_observer')), 403)
    t.equal(await ask(tokenOf('reader', FOREIGN)), 403)
    t.equal(await ask(tokenOf('nobody', FOREIGN)), 403)
    t.equal(await ask(tokenOf('member', '')), 403)
    t.equal(await ask(tokenOf('admin')), 201)
  })
  await t.test('an administrator may refer to any project’s objects', async t => {
    const admin = tokenOf('admin')
    const body = { member: member(foreign.subnet) }
    t.equal((await api.ask('POST', `/v2/lbaas/pools/${foreign.pool}/members`, body, admin)).status, 201)
  })
})

t.test('another project’s object in the path is forbidden, not hidden', async t => {
  const { api, own, foreign } = await startTwoProjects(t)
  const requests: [string, string, object | undefined][] = [
    ['GET', `loadbalancers/${foreign.lb}`, undefined],
    ['PUT', `loadbalancers/${foreign.lb}`, { loadbalancer: { name: 'x' } }],
    ['DELETE', `loadbalancers/${foreign.lb}?cascade=true`, undefined],
    ['PUT', `listeners/${foreign.listener}`, { listener: { name: 'x' } }],
    ['PUT', `listeners/${foreign.listener}`, { listener: { default_pool_id: own.pool } }],
    ['DELETE', `listeners/${foreign.listener}`, undefined],
    ['PUT', `pools/${foreign.pool}`, { pool: { name: 'x' } }],
    ['DELETE', `pools/${foreign.pool}`, undefined],
    ['GET', `pools/${foreign.pool}/members`, undefined],
    ['POST', `pools/${foreign.pool}/members`, { member: { address: '10.7.0.1', protocol_port: 1 } }],
    ['PUT', `pools/${foreign.pool}/members`, { members: [] }],
    ['PUT', `pools/${foreign.pool}/members/${foreign.member}`, { member: { weight: 0 } }],
  ]
  for (const [method, path, body] of requests) {
    const reply = await api.ask(method, `/v2/lbaas/${path}`, body)
    t.match(reply, { status: 403, body: { faultstring: 'Policy does not allow this request to be performed.' } }, path)
  }
  t.match(await api.ask('PUT', `/v2/lbaas/pools/${own.pool}/members/${foreign.member}`, { member: { weight: 0 } }), {
    status: 404,
    body: { faultstring: `Member ${foreign.member} not found.` },
  })
  const seen = await api.ask('GET', `/v2/lbaas/listeners?loadbalancer_id=${foreign.lb}`)
  t.same(seen.body.listeners, [])
})
