import t from 'tap'
import { isAllowed, withEffectiveRoles } from '../../../controller/load-balancer/schema/rights.js'
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
type Rules = 'union' | 'strict'
const none = { union: 'none', strict: 'none' } as const
const own = { union: 'own', strict: 'own' } as const
const every = { union: 'every', strict: 'every' } as const
const onlyInUnion = { union: 'own', strict: 'none' } as const

/** The scope of each role under the rules in force. */
const REACH: Readonly<Record<string, Readonly<Record<Who, Readonly<Record<Rules, Reach>>>>>> = {
  nobody: {
    reads: none,
    'reads members': none,
    writes: none,
    'reads quota': none,
    'writes quota': none,
    administers: none,
  },
  reader: {
    reads: own,
    'reads members': own,
    writes: none,
    'reads quota': own,
    'writes quota': none,
    administers: none,
  },
  member: {
    reads: own,
    'reads members': own,
    writes: own,
    'reads quota': own,
    'writes quota': none,
    administers: none,
  },
  service: {
    reads: none,
    'reads members': every,
    writes: none,
    'reads quota': none,
    'writes quota': none,
    administers: none,
  },
  'load-balancer_observer': {
    reads: onlyInUnion,
    'reads members': onlyInUnion,
    writes: none,
    'reads quota': onlyInUnion,
    'writes quota': none,
    administers: none,
  },
  'load-balancer_member': {
    reads: onlyInUnion,
    'reads members': onlyInUnion,
    writes: onlyInUnion,
    'reads quota': onlyInUnion,
    'writes quota': none,
    administers: none,
  },
  'load-balancer_member,member': {
    reads: own,
    'reads members': own,
    writes: own,
    'reads quota': own,
    'writes quota': none,
    administers: none,
  },
  'load-balancer_global_observer': {
    reads: every,
    'reads members': every,
    writes: none,
    'reads quota': every,
    'writes quota': none,
    administers: none,
  },
  'load-balancer_quota_admin': {
    reads: none,
    'reads members': none,
    writes: none,
    'reads quota': every,
    'writes quota': every,
    administers: none,
  },
  'load-balancer_admin': {
    reads: every,
    'reads members': every,
    writes: every,
    'reads quota': every,
    'writes quota': every,
    administers: every,
  },
  admin: {
    reads: every,
    'reads members': every,
    writes: every,
    'reads quota': every,
    'writes quota': every,
    administers: every,
  },
}

t.test('each route allows exactly the roles and projects that its rules name', async t => {
  t.strictSame(Object.keys(WHO).sort(), [...loadBalancerRoutes.keys()].sort(), 'every route has a row')
  for (const [route, who] of Object.entries(WHO) as [string, Who][]) {
    const wrong: string[] = []
    for (const [roles, reach] of Object.entries(REACH)) {
      for (const rules of ['union', 'strict'] as const) {
        for (const project of [OWN, FOREIGN, '', SYSTEM]) {
          const caller = callerOf(tokenOf(roles, project))
          if (caller === null) throw new Error('A test token is invalid')
          const counted = withEffectiveRoles(caller, { strict_roles: rules === 'strict', system_scope: false })
          const far = reach[who][rules]
          const hasProject = project === OWN || project === FOREIGN
          const expected = hasProject && (far === 'every' || (far === 'own' && project === OWN))
          if (isAllowed(counted, rightOf(route), OWN) !== expected)
            wrong.push(`${roles}@${project.slice(0, 6)} ${rules}`)
        }
      }
    }
    t.strictSame(wrong, [], route)
  }
})

const BODY = { loadbalancer: { vip_subnet_id: SUBNET } }
const PATH = '/v2/lbaas/loadbalancers'

t.test('with strict_roles, the API requires a project role', async t => {
  const api = await startTestApi({ settings: { strict_roles: true } })
  t.teardown(api.stop)
  const status = async (method: string, roles: string, body?: object) =>
    (await api.ask(method, PATH, body, tokenOf(roles))).status
  t.equal(await status('GET', 'load-balancer_observer'), 403)
  t.equal(await status('GET', 'load-balancer_observer,reader'), 200)
  t.equal(await status('POST', 'load-balancer_member', BODY), 403)
  t.equal(await status('POST', 'load-balancer_member,reader', BODY), 403, 'the reader role decides')
  t.equal(await status('POST', 'load-balancer_member,member', BODY), 201)
  t.equal(await status('POST', 'member', BODY), 201)
  t.equal(await status('GET', 'load-balancer_global_observer'), 200)
})

t.test('system-scoped tokens count only with system_scope enabled', async t => {
  for (const settings of [{}, { system_scope: true }]) {
    const on = Object.hasOwn(settings, 'system_scope')
    const api = await startTestApi({ settings })
    t.teardown(api.stop)
    const ask = (method: string, path: string, roles: string, body?: object) =>
      api.ask(method, path, body, tokenOf(roles, SYSTEM))
    await api.ask('POST', PATH, BODY)
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
