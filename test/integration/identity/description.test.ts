import t from 'tap'
import { allRoutes } from '../../../controller/identity/routes.js'
import { checkDescription } from '../../support/clients/described-api.js'
import { startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)

t.test('the identity API describes itself', t => checkDescription(t, allRoutes, identity.url))
