import t from 'tap'
import { checkDescription } from '../../support/clients/described-api.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { routesOf } from '../../support/clients/routes.js'

const api = await startTestKeyManager({ crypto: { enable_multiple_secret_stores: true } })
t.teardown(api.stop)

t.test('the key manager API describes itself', t => {
  const served = routesOf(api.app).filter(({ path }) => path !== '/docs' && path !== '/openapi.json')
  return checkDescription(t, served, api.url)
})
