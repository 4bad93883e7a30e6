import t from 'tap'
import { isAllowed, requesterOf } from '../../../controller/load-balancer/schema/rights.js'
import { callerOf, FOREIGN, OWN, SYSTEM, tokenOf } from '../../support/clients/callers.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'
import { loadBalancerRoutes, rightOf } from '../../support/inputs/load-balancer-routes.js'

/** Who may call a route, written out here so that the test does not depend on the product's tables. */
type Who = 'reads' | 'reads members' | 'writes' | 'reads quota' | 'writes quota' | 'administers'

/** Has a row for every route. */
const WHO = {
  'GET /lbaas/loadbalancers': 'reads',
  'POST /lbaas/loadbalancers': 'writes',
  'GET /lbaas/loadbalancers/:id': 'reads',
  'PUT /lbaas/loadbalancers/:id': 'writes',
  'DELETE /lbaas/loadbalancers/:id': 'writes',
  'GET /lbaas/loadbalancers/:id/stats': 'reads',
  'GET /lbaas/loadbalancers/:id/status': 'reads',
  'GET /lbaas/loadbalancers/:id/statuses': 'reads',
  'GET /lbaas/loadbalancers/:id/events': 'reads',
  'PUT /lbaas/loadbalancers/:id/failover': 'administers',
  'GET /lbaas/certificates': 'reads',
  'GET /lbaas/listeners': 'reads',
  'POST /lbaas/listeners': 'writes',
  'GET /lbaas/listeners/:id': 'reads',
  'PUT /lbaas/listeners/:id': 'writes',
  'DELETE /lbaas/listeners/:id': 'writes',
  'GET /lbaas/listeners/:id/stats': 'reads',
  'GET /lbaas/pools': 'reads',
  'POST /lbaas/pools': 'writes',
  'GET /lbaas/pools/:id': 'reads',
  'PUT /lbaas/pools/:id': 'writes',
  'DELETE /lbaas/pools/:id': 'writes',
  'GET /lbaas/pools/:id/stats': 'reads',
  'GET /lbaas/pools/:pool/members': 'reads members',
  'POST /lbaas/pools/:pool/members': 'writes',
  'PUT /lbaas/pools/:pool/members': 'writes',
  'GET /lbaas/pools/:pool/members/:id': 'reads',
  'PUT /lbaas/pools/:pool/members/:id': 'writes',
  'DELETE /lbaas/pools/:pool/members/:id': 'writes',
  'GET /lbaas/healthmonitors': 'reads',
  'POST /lbaas/healthmonitors': 'writes',
  'GET /lbaas/healthmonitors/:id': 'reads',
  'PUT /lbaas/healthmonitors/:id': 'writes',
  'DELETE /lbaas/healthmonitors/:id': 'writes',
  'GET /lbaas/l7policies': 'reads',
  'POST /lbaas/l7policies': 'writes',
  'GET /lbaas/l7policies/:id': 'reads',
  'PUT /lbaas/l7policies/:id': 'writes',
  'DELETE /lbaas/l7policies/:id': 'writes',
  'GET /lbaas/l7policies/:policy/rules': 'reads',
  'POST /lbaas/l7policies/:policy/rules': 'writes',
  'GET /lbaas/l7policies/:policy/rules/:id': 'reads',
  'PUT /lbaas/l7policies/:policy/rules/:id': 'writes',
  'DELETE /lbaas/l7policies/:policy/rules/:id': 'writes',
  'GET /lbaas/quotas': 'reads quota',
  'GET /lbaas/quotas/defaults': 'reads quota',
  'GET /lbaas/quotas/:project': 'reads quota',
  'GET /lbaas/quotas/:project/default': 'reads quota',
  'GET /lbaas/quotas/:project/usage': 'reads quota',
  'PUT /lbaas/quotas/:project': 'writes quota',
  'DELETE /lbaas/quotas/:project': 'writes quota',
  'GET /lbaas/providers': 'reads',
  'GET /lbaas/providers/:provider/flavor_capabilities': 'administers',
  'GET /lbaas/providers/:provider/availability_zone_capabilities': 'administers',
  'GET /lbaas/flavors': 'reads',
  'POST /lbaas/flavors': 'administers',
  'GET /lbaas/flavors/:id': 'reads',
  'PUT /lbaas/flavors/:id': 'administers',
  'DELETE /lbaas/flavors/:id': 'administers',
  'GET /lbaas/flavorprofiles': 'administers',
  'POST /lbaas/flavorprofiles': 'administers',
  'GET /lbaas/flavorprofiles/:id': 'administers',
  'PUT /lbaas/flavorprofiles/:id': 'administers',
  'DELETE /lbaas/flavorprofiles/:id': 'administers',
  'GET /lbaas/availabilityzones': 'reads',
  'POST /lbaas/availabilityzones': 'administers',
  'GET /lbaas/availabilityzones/:name': 'reads',
  'PUT /lbaas/availabilityzones/:name': 'administers',
  'DELETE /lbaas/availabilityzones/:name': 'administers',
  'GET /lbaas/availabilityzoneprofiles': 'administers',
  'POST /lbaas/availabilityzoneprofiles': 'administers',
  'GET /lbaas/availabilityzoneprofiles/:id': 'administers',
  'PUT /lbaas/availabilityzoneprofiles/:id': 'administers',
  'DELETE /lbaas/availabilityzoneprofiles/:id': 'administers',
  'GET /octavia/amphorae': 'administers',
  'GET /octavia/amphorae/:id': 'administers',
  'DELETE /octavia/amphorae/:id': 'administers',
  'GET /octavia/amphorae/:id/stats': 'administers',
  'PUT /octavia/amphorae/:id/failover': 'administers',
  'PUT /octavia/amphorae/:id/config': 'administers',
} as const satisfies Record<string, Who>

type Reach = 'none' | 'own' | 'every'
type Policy = 'union' | 'legacy' | 'new'
const POLICIES = ['union', 'legacy', 'new'] as const

const none = { union: 'none', legacy: 'none', new: 'none' } as const
const own = { union: 'own', legacy: 'own', new: 'own' } as const
const every = { union: 'every', legacy: 'every', new: 'every' } as const
const ownByLegacy = { union: 'own', legacy: 'own', new: 'none' } as const
const ownByNew = { union: 'own', legacy: 'none', new: 'own' } as const
const everyByLegacy = { union: 'every', legacy: 'every', new: 'none' } as const

const NOTHING = {
  reads: none,
  'reads members': none,
  writes: none,
  'reads quota': none,
  'writes quota': none,
  administers: none,
} as const satisfies Record<Who, Readonly<Record<Policy, Reach>>>
const reading = <Scope>(scope: Scope) => ({ reads: scope, 'reads members': scope, 'reads quota': scope })

/** The scope of each role by each policy. */
const REACH: Readonly<Record<string, Readonly<Record<Who, Readonly<Record<Policy, Reach>>>>>> = {
  nobody: NOTHING,
  reader: { ...NOTHING, ...reading(ownByNew) },
  member: { ...NOTHING, ...reading(ownByNew), writes: ownByNew },
  service: { ...NOTHING, 'reads members': every },
  'load-balancer_observer': { ...NOTHING, ...reading(ownByLegacy) },
  'load-balancer_member': { ...NOTHING, ...reading(ownByLegacy), writes: ownByLegacy },
  'load-balancer_observer,reader': { ...NOTHING, ...reading(own) },
  'load-balancer_member,reader': { ...NOTHING, ...reading(own), writes: ownByLegacy },
  'load-balancer_member,member': { ...NOTHING, ...reading(own), writes: own },
  'load-balancer_global_observer': { ...NOTHING, ...reading(everyByLegacy) },
  'load-balancer_quota_admin': { ...NOTHING, 'reads quota': everyByLegacy, 'writes quota': everyByLegacy },
  'load-balancer_admin': {
    ...reading(everyByLegacy),
    writes: everyByLegacy,
    'writes quota': everyByLegacy,
    administers: every,
  },
  admin: { ...reading(every), writes: every, 'writes quota': every, administers: every },
}

t.test('each route allows exactly the roles and projects that each policy names', async t => {
  t.strictSame(Object.keys(WHO).sort(), [...loadBalancerRoutes.keys()].sort(), 'every route has a row')
  for (const [route, who] of Object.entries(WHO) as [string, Who][]) {
    const wrong: string[] = []
    for (const [roles, reach] of Object.entries(REACH)) {
      for (const policy of POLICIES) {
        for (const project of [OWN, FOREIGN, '', SYSTEM]) {
          const caller = callerOf(tokenOf(roles, project))
          if (caller === null) throw new Error('A test token is invalid')
          const requester = requesterOf(caller, { policy, system_scope: false })
          const far = reach[who][policy]
          const hasProject = project === OWN || project === FOREIGN
          const expected = hasProject && (far === 'every' || (far === 'own' && project === OWN))
          if (isAllowed(requester, rightOf(route), OWN) !== expected)
            wrong.push(`${roles}@${project.slice(0, 6)} ${policy}`)
        }
      }
    }
    t.strictSame(wrong, [], route)
  }
})

const BODY = { loadbalancer: { vip_subnet_id: SUBNET } }
const PATH = '/v2/lbaas/loadbalancers'

t.test('the setting policy chooses whose roles the API asks for', async t => {
  const expected = {
    union: { 'load-balancer_member': 201, member: 201, 'load-balancer_observer': 403, reader: 403 },
    legacy: { 'load-balancer_member': 201, member: 403, 'load-balancer_member,member': 201, reader: 403 },
    new: { 'load-balancer_member': 403, member: 201, 'load-balancer_member,reader': 403, 'load-balancer_admin': 403 },
  }
  for (const policy of POLICIES) {
    const api = await startTestApi({ settings: { policy } })
    t.teardown(api.stop)
    for (const [roles, status] of Object.entries(expected[policy])) {
      t.equal((await api.ask('POST', PATH, BODY, tokenOf(roles))).status, status, `${policy}: ${roles} creates`)
    }
    for (const [roles, allowing] of [
      ['load-balancer_observer', 'legacy'],
      ['reader', 'new'],
    ] as const) {
      const { status } = await api.ask('GET', PATH, undefined, tokenOf(roles))
      t.equal(status, policy === 'union' || policy === allowing ? 200 : 403, `${policy}: ${roles} lists`)
    }
    const described = (await api.ask('GET', '/openapi.json', undefined, null)).text
    t.equal(
      described.includes('load-balancer_observer'),
      policy !== 'new',
      'the description names the roles that count',
    )
    t.equal(described.includes('In the caller’s project: reader'), policy !== 'legacy')
  }
})

t.test('system-scoped tokens count only with system_scope enabled', async t => {
  for (const settings of [{}, ...POLICIES.map(policy => ({ system_scope: true, policy }))]) {
    const on = Object.hasOwn(settings, 'system_scope')
    const api = await startTestApi({ settings })
    t.teardown(api.stop)
    const ask = (method: string, path: string, roles: string, body?: object) =>
      api.ask(method, path, body, tokenOf(roles, SYSTEM))
    await api.ask('POST', PATH, BODY, tokenOf('admin'))
    const listed = await ask('GET', PATH, 'reader')
    t.equal(listed.status, on ? 200 : 403)
    if (on)
      t.equal(
        Array.isArray(listed.body.loadbalancers) && listed.body.loadbalancers.length,
        1,
        'it lists load balancers of every project',
      )
    t.equal((await ask('POST', PATH, 'reader', BODY)).status, 400, 'a create needs a project')
    const inProject = { loadbalancer: { vip_subnet_id: SUBNET, project_id: OWN } }
    t.equal((await ask('POST', PATH, 'reader', inProject)).status, 403, 'a system reader may not write')
    t.equal((await ask('POST', PATH, 'member', inProject)).status, 403)
    t.equal((await ask('POST', PATH, 'admin,member,reader', inProject)).status, on ? 201 : 403)
    t.equal((await ask('GET', '/v2/octavia/amphorae', 'admin')).status, on ? 200 : 403)
    t.equal((await api.ask('GET', PATH, undefined, tokenOf('admin', ''))).status, 403, 'an unscoped token never counts')
  }
})
