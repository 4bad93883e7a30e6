import t from 'tap'
import { sentenceOf } from '../../../controller/cli/faults/fault.js'
import { listenersOf } from '../../../controller/cli/host/checks.js'
import { takenPorts } from '../../../controller/cli/host/ports.js'
import { parseConfiguration } from '../../../controller/config/load.js'
import { ownPorts } from '../../support/ports.js'

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
  t.same(settingsOf('', '10.64.0.1'), [
    ...apis,
    ...[
      ['key_manager.channel', 'tcp', 9312],
      ['health_manager', 'udp', 5555],
    ],
  ])
  const barbican = 'load_balancer: {key_manager_url: "https://barbican:9311", key_manager_gateway_port: 5555}'
  t.same(
    settingsOf(barbican, '10.64.0.1').filter(([, , port]) => port === 5555),
    [
      ['health_manager', 'tcp', 5555],
      ['health_manager', 'udp', 5555],
    ],
    'the gateway to another key manager listens beside the health manager',
  )
  t.same(
    settingsOf('identity: {external_url: "http://keystone/v3", username: krater, password: x}'),
    apis.slice(1),
    'an external Keystone listens itself',
  )
})

t.test('two settings with the same port are named, whoever else has it', async t => {
  const ports = await ownPorts(4)
  const [first = 0, second = 0, third = 0, fourth = 0] = ports
  const faultsOf = async (hosts: string, ...[identity, balancer, network, manager]: number[]) => {
    const text = `identity: {port: ${identity}}
load_balancer: {port: ${balancer}, ${hosts}}
network: {port: ${network}}
key_manager: {port: ${manager}}
health_manager: {port: ${first}}`
    const faults = await takenPorts(listenersOf(parseConfiguration(text, {}), '127.0.0.1'))
    return faults.map(sentenceOf)
  }
  t.same(await faultsOf('', ...ports), [], 'UDP has its own ports')
  const channel = parseConfiguration(
    `load_balancer: {key_manager_url: "https://barbican:9311", key_manager_gateway_port: 9312}`,
    {},
  )
  const [gateway] = await takenPorts(listenersOf(channel, '127.0.0.1').filter(({ port }) => port === 9312))
  t.match(gateway?.remedy, 'key_manager.channel.port (KRATER_KEY_MANAGER_CHANNEL_PORT)')
  t.match(gateway?.remedy, 'load_balancer.key_manager_gateway_port (KRATER_LOAD_BALANCER_KEY_MANAGER_GATEWAY_PORT)')
  t.same(await faultsOf('', first, first, third, fourth), [
    `identity.port and load_balancer.port are both ${first}, but the identity API and the load balancer API need a port each. Set another load_balancer.port (KRATER_LOAD_BALANCER_PORT) or identity.port (KRATER_IDENTITY_PORT).`,
  ])
  t.match(await faultsOf('host: 0.0.0.0', first, second, second, second), [
    /^load_balancer\.port and network\.port are both/,
    /^load_balancer\.port and key_manager\.port are both/,
  ])
  t.same(await faultsOf('host: 127.0.0.2', first, first, third, fourth), [], 'another address is another place')
})
