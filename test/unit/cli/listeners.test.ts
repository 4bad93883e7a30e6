import t from 'tap'
import { listenersOf } from '../../../controller/cli/host/checks.js'
import { parseConfiguration } from '../../../controller/config/load.js'

const settingsOf = (text: string, healthManagerHost: string | null = null) =>
  listenersOf(parseConfiguration(text, {}), healthManagerHost).map(({ setting, protocol, port }) => [
    setting,
    protocol,
    port,
  ])

t.test('every API and the health manager is among the listeners whose ports are checked', async t => {
  const apis = [
    ['identity', 'tcp', 5000],
    ['load_balancer', 'tcp', 9876],
    ['network', 'tcp', 9696],
    ['key_manager', 'tcp', 9311],
  ]
  t.same(settingsOf(''), apis)
  t.same(settingsOf('', '10.64.0.1'), [...apis, ['health_manager', 'udp', 5555]])
  t.same(
    settingsOf('identity: {external_url: "http://keystone/v3", username: krater, password: x}'),
    apis.slice(1),
    'an external Keystone listens itself',
  )
})
