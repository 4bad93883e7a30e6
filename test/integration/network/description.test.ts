import t from 'tap'
import { checkDescription } from '../../support/clients/described-api.js'
import { startNetworkApi } from '../../support/clients/network-api.js'

const api = await startNetworkApi()
t.teardown(api.stop)

t.test('the network API describes itself', t => checkDescription(t, api.app, api.url))
