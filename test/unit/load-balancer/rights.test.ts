import t from 'tap'
import { isAllowed, requesterOf } from '../../../controller/load-balancer/schema/rights.js'
import { callerOf, FOREIGN, OWN, tokenOf } from '../../support/clients/callers.js'

t.test('each role may read, write or administer what the API’s policy allows', async t => {
  const may = (
    roles: string,
    right: 'read' | 'write' | 'admin' | 'read members',
    project: string | null,
    scope = OWN,
  ) => {
    const caller = callerOf(tokenOf(roles, scope))
    return caller !== null && isAllowed(requesterOf(caller, { policy: 'union', system_scope: false }), right, project)
  }
  t.ok(may('member', 'write', OWN) && may('load-balancer_member', 'write', OWN) && may('reader', 'read', OWN))
  t.notOk(may('reader', 'write', OWN) || may('load-balancer_observer', 'write', OWN) || may('member', 'read', FOREIGN))
  t.ok(
    may('admin', 'admin', FOREIGN) &&
      may('load-balancer_admin', 'write', FOREIGN) &&
      may('load-balancer_global_observer', 'read', FOREIGN),
  )
  t.notOk(
    may('load-balancer_global_observer', 'write', FOREIGN) ||
      may('member', 'admin', OWN) ||
      may('member', 'read', null),
  )
  t.ok(may('service', 'read members', FOREIGN))
  t.notOk(may('service', 'read', OWN) || may('admin', 'read', OWN, ''), 'a token without a project has no rights')
})
