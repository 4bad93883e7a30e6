import t from 'tap'
import { parseConfiguration } from '../../../controller/config/load.js'
import { ConfigurationError } from '../../../controller/options/configuration-error.js'

/** The message about a wrong configuration. */
function refusal(text: string, environment: NodeJS.ProcessEnv = {}): string {
  try {
    parseConfiguration(text, environment, '/etc/krater.yaml')
  } catch (error) {
    if (error instanceof ConfigurationError) return error.message
    throw error
  }
  throw new Error(`${text} is accepted`)
}

t.test('an unknown setting is answered with the one that was probably meant', async t => {
  const list = '`krater settings` lists all settings.'
  const about = (name: string) => `/etc/krater.yaml: unknown setting ${name}`
  const cases: [string, string][] = [
    ['network: {drivr: noop}', `${about('network.drivr')} (did you mean network.driver?). ${list}`],
    ['netwrok: {}', `${about('netwrok')} (did you mean network?). ${list}`],
    [
      'load_balancer_port: 1',
      `${about('load_balancer_port')} (did you mean load_balancer.port? Write it as \`load_balancer:\` with \`port:\` indented below it). ${list}`,
    ],
    ['identity: {PORT: 1}', `${about('identity.PORT')} (did you mean identity.port?). ${list}`],
    ['mood: good', `${about('mood')}. ${list}`],
    ['load_balancer: {mood: good}', `${about('load_balancer.mood')}. ${list}`],
  ]
  for (const [text, message] of cases) t.equal(refusal(text), message)
  t.equal(refusal('mood: good\nnetwrok: {}').split('\n').length, 2, 'each has a line')
})

t.test('a setting with dots is answered with its form in YAML', async t => {
  t.equal(
    refusal('load_balancer.port: 9877'),
    '/etc/krater.yaml: unknown setting load_balancer.port: write it as `load_balancer:` with `port:` indented below it.',
  )
  t.match(
    refusal('key_manager: {quota.secrets: 7}'),
    /unknown setting key_manager\.quota\.secrets: write it as `quota:` with `secrets:` indented below it\.$/,
  )
  t.match(
    refusal('key_manager.quota.secrets: 7'),
    /: write it as `key_manager:` with `quota:` indented below it, and `secrets:` below that\.$/,
  )
  t.match(
    refusal('load_balancer.prot: 1'),
    /unknown setting load_balancer\.prot \(did you mean load_balancer\.port\? Write it as /,
  )
})

t.test('a wrong item of a list is shown with the list, its source and how a list is written', async t => {
  t.equal(
    refusal('', { KRATER_LOAD_BALANCER_HOST_MEMBER_PORTS: '8081,, x' }),
    'load_balancer.host_member_ports: "x" in "8081,, x" (from KRATER_LOAD_BALANCER_HOST_MEMBER_PORTS) is not allowed: each item must be a number. A list is written with commas between its items: one,two.',
  )
  t.equal(
    refusal('load_balancer: {host_member_ports: [8081, 70000]}'),
    'load_balancer.host_member_ports: "70000" in "[8081,70000]" (from /etc/krater.yaml) is not allowed: each item must be a number at most 65535.',
  )
})

t.test('physical networks are names with interfaces; anything else is shown with an example', async t => {
  const read = (text: string, environment: NodeJS.ProcessEnv = {}) =>
    parseConfiguration(text, environment, '/etc/krater.yaml').network.physical_networks
  const both = { lan: { interface: 'eth0' }, 'lan-2': { interface: 'br.7' } }
  t.strictSame(read(''), {})
  t.strictSame(read('network: {physical_networks: {lan: eth0, lan-2: {interface: br.7}}}'), both)
  t.strictSame(read('network: {physical_networks: "lan:eth0, lan-2:br.7"}'), both)
  t.strictSame(read('', { KRATER_NETWORK_PHYSICAL_NETWORKS: 'lan:eth0,lan-2:br.7' }), both)
  for (const wrong of [
    '[eth0]',
    'eth0',
    '"lan:"',
    '{lan: 7}',
    '{lan: {device: eth0}}',
    '{lan: eth0 up}',
    '{lan: eth012345678901234}',
    '{lan: ..}',
    '{-lan: eth0}',
    '"lan:eth0,lan:eth1"',
  ]) {
    t.match(
      refusal(`network: {physical_networks: ${wrong}}`),
      /^network\.physical_networks: .* \(from \/etc\/krater\.yaml\) is not allowed: it must be names, each with an interface of this machine, such as lan: eth0/,
      wrong,
    )
  }
})
