import t from 'tap'
import { checkDescription } from '../../support/clients/described-api.js'
import { startNetworkApi } from '../../support/clients/network-api.js'
import { routesOf } from '../../support/clients/routes.js'

const api = await startNetworkApi()
t.teardown(api.stop)

t.test('the network API describes itself', t => {
  const served = routesOf(api.app).filter(({ path }) => path !== '/docs' && path !== '/openapi.json')
  return checkDescription(t, served, api.url)
})
