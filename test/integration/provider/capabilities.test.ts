import t, { type Test } from 'tap'
import { RESOURCES } from '../../../controller/load-balancer/description/resources.js'
import { readTree } from '../../../controller/load-balancer/tree/read-tree.js'
import type { LoadBalancerTree } from '../../../controller/load-balancer/tree/tree.js'
import { noopSubnet } from '../../../controller/network/noop/driver.js'
import { amphoraCapabilities } from '../../../controller/provider/amphora/capabilities.js'
import { desiredPorts } from '../../../controller/provider/amphora/plan/desired-ports.js'
import { renderDesired } from '../../../controller/provider/amphora/rendering/desired.js'
import { idIn, type Json, type JsonValue } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'
import { REF } from '../../support/inputs/load-balancer-options.js'
import { offersOf } from '../../support/inputs/placement.js'
import { factsFor, wholeTree, withPlainIds } from '../../support/worlds/injection-scene.js'

/**
 * Values of an attribute that must all render differently, and the attributes of an object that has one of
 * them.
 */
type Trial = {
  /** Null means unset. Default: the values in the schema that the provider offers. */
  values?: readonly JsonValue[]
  body?: (value: JsonValue) => Json
  /** The kind of object whose body holds the attribute, when it is another one. */
  on?: string
}

/** With one id, so that references differ in what they name. */
const SECRET = REF
const CONTAINER = REF.replace('secrets', 'containers')
const OTHER = 'https://keys.test/v1/secrets/6f0c7d52-9f5e-4a0c-8d4e-0d5b8c1f7a11'

const HTTPS = { protocol: 'TERMINATED_HTTPS', default_tls_container_ref: SECRET }
const withTls = (name: string, context: Json = {}) => ({
  body: (value: JsonValue) => ({ ...HTTPS, ...context, [name]: value }),
})
const toTls = (name: string, context: Json = {}) => ({
  body: (value: JsonValue) => ({ tls_enabled: true, ...context, [name]: value }),
})
const CIPHERS = [null, 'AESGCM', 'TLS_AES_128_GCM_SHA256', 'AESGCM:TLS_AES_128_GCM_SHA256']
const VERSIONS = [null, ['TLSv1.3'], ['TLSv1.2'], ['TLSv1', 'TLSv1.1', 'TLSv1.2']]
const APPLICATION_PROTOCOLS = [null, ['h2'], ['http/1.1', 'h2'], ['http/1.0']]

const POOL = { name: 'pool', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }
const RULES = [{ type: 'PATH', compare_type: 'STARTS_WITH', value: '/api' }]
const location = (action: string) => (value: JsonValue) => ({ action, redirect_url: value, redirect_prefix: value })

const TRIALS: Readonly<Record<string, Trial>> = {
  'loadbalancer.vip_address': { values: ['203.0.113.10', '203.0.113.99'] },
  'loadbalancer.additional_vips': {
    values: [[], [{ subnet_id: SUBNET.replace('1', '2'), ip_address: '203.0.113.98' }]],
  },
  // HTTPS is passed through, so an amphora sees TCP
  'listener.protocol': {
    values: ['HTTP', 'TCP', 'PROMETHEUS', 'TERMINATED_HTTPS'],
    body: protocol => ({
      ...(protocol === 'TERMINATED_HTTPS' ? HTTPS : { protocol }),
      default_pool: null,
      l7policies: [],
    }),
  },
  'listener.protocol_port': { values: [80, 90] },
  'listener.connection_limit': { values: [null, 5] },
  'listener.default_pool_id': { values: [null, POOL], body: default_pool => ({ default_pool }) },
  'listener.insert_headers': {
    values: [
      ...['X-Forwarded-For', 'X-Forwarded-Port', 'X-Forwarded-Proto', 'X-Forwarded-IP', 'X-Client-IP', 'X-Real-IP'],
      ...['X-SSL-Client-Verify', 'X-SSL-Client-Has-Cert', 'X-SSL-Client-DN', 'X-SSL-Client-CN', 'X-SSL-Issuer'],
      ...['X-SSL-Client-SHA1', 'X-SSL-Client-Not-Before', 'X-SSL-Client-Not-After'],
    ],
    body: header => ({
      ...(String(header).startsWith('X-SSL-') ? HTTPS : {}),
      insert_headers: { [String(header)]: 'true' },
    }),
  },
  'listener.default_tls_container_ref': {
    values: [null, SECRET, CONTAINER],
    body: default_tls_container_ref => ({
      protocol: 'PROMETHEUS',
      default_tls_container_ref,
      default_pool: null,
      l7policies: [],
    }),
  },
  'listener.sni_container_refs': {
    values: [[], [OTHER], [OTHER.replace('secrets', 'containers')]],
    ...withTls('sni_container_refs'),
  },
  'listener.client_authentication': withTls('client_authentication', { client_ca_tls_container_ref: OTHER }),
  'listener.client_ca_tls_container_ref': {
    values: [SECRET, CONTAINER],
    ...withTls('client_ca_tls_container_ref', { client_authentication: 'OPTIONAL' }),
  },
  'listener.client_crl_container_ref': {
    values: [null, SECRET, CONTAINER],
    ...withTls('client_crl_container_ref', {
      client_authentication: 'MANDATORY',
      client_ca_tls_container_ref: OTHER,
    }),
  },
  'listener.tls_ciphers': { values: CIPHERS, ...withTls('tls_ciphers') },
  'listener.tls_versions': { values: VERSIONS, ...withTls('tls_versions') },
  'listener.alpn_protocols': { values: APPLICATION_PROTOCOLS, ...withTls('alpn_protocols') },
  'listener.hsts_max_age': { values: [null, 0, 9], ...withTls('hsts_max_age') },
  'listener.hsts_include_subdomains': withTls('hsts_include_subdomains', { hsts_max_age: 9 }),
  'listener.hsts_preload': withTls('hsts_preload', { hsts_max_age: 9 }),
  'listener.timeout_client_data': { values: [null, 9] },
  'listener.timeout_member_connect': { values: [null, 9] },
  'listener.timeout_member_data': { values: [null, 9] },
  'listener.timeout_tcp_inspect': {
    values: [null, 9],
    body: timeout_tcp_inspect => ({ timeout_tcp_inspect, protocol: 'TCP', l7policies: [] }),
  },
  'listener.allowed_cidrs': { values: [null, ['192.0.2.0/24']] },
  // with an HTTP listener; HTTPS and TCP pools need another one, where only the PROXY protocols render
  // differently
  'pool.protocol': { values: ['HTTP', 'PROXY', 'PROXYV2'] },
  'pool.session_persistence': {
    values: [
      null,
      { type: 'SOURCE_IP' },
      { type: 'HTTP_COOKIE' },
      { type: 'HTTP_COOKIE', cookie_name: 'c' },
      { type: 'APP_COOKIE', cookie_name: 'c' },
    ],
  },
  'pool.deregistration_delay': { values: [null, 0, 5] },
  'pool.tls_container_ref': { values: [null, SECRET, CONTAINER], ...toTls('tls_container_ref') },
  'pool.ca_tls_container_ref': { values: [null, SECRET, CONTAINER], ...toTls('ca_tls_container_ref') },
  'pool.crl_container_ref': {
    values: [null, SECRET, CONTAINER],
    ...toTls('crl_container_ref', { ca_tls_container_ref: OTHER }),
  },
  'pool.tls_ciphers': { values: CIPHERS, ...toTls('tls_ciphers') },
  'pool.tls_versions': { values: VERSIONS, ...toTls('tls_versions') },
  'pool.alpn_protocols': { values: APPLICATION_PROTOCOLS, ...toTls('alpn_protocols') },
  // A host name, which members are asked for by SNI.
  'member.name': {
    on: 'pools',
    values: ['a member', 'a.example', 'b.example'],
    body: name => ({ tls_enabled: true, members: [{ name, address: '192.0.2.10', protocol_port: 443 }] }),
  },
  'member.address': { values: ['192.0.2.10', '192.0.2.11'] },
  'member.protocol_port': { values: [80, 90] },
  'member.weight': { values: [null, 0, 7] },
  'member.subnet_id': { values: [null, SUBNET.replace('1', '3')] },
  'member.monitor_address': { values: [null, '192.0.2.12'] },
  'member.monitor_port': { values: [null, 81] },
  'healthmonitor.type': { values: ['HTTP', 'HTTPS', 'PING', 'TCP', 'TLS-HELLO'] },
  'healthmonitor.delay': { values: [5, 6] },
  'healthmonitor.timeout': { values: [3, 4] },
  'healthmonitor.max_retries': { values: [2, 3], body: max_retries => ({ max_retries, max_retries_down: 2 }) },
  'healthmonitor.max_retries_down': { values: [null, 3] },
  'healthmonitor.url_path': { values: [null, '/x'] },
  'healthmonitor.expected_codes': { values: [null, '204'] },
  'healthmonitor.domain_name': {
    values: [null, 'a.example'],
    body: domain_name => ({ domain_name, http_version: 1.1 }),
  },
  'l7policy.action': {
    body: action => ({ ...location(String(action))('http://a.example'), redirect_pool: null }),
    values: ['REJECT', 'REDIRECT_TO_URL', 'REDIRECT_PREFIX'],
  },
  'l7policy.redirect_pool_id': {
    on: 'l7policies',
    values: ['ROUND_ROBIN', 'LEAST_CONNECTIONS'],
    body: lb_algorithm => ({ action: 'REDIRECT_TO_POOL', redirect_pool: { ...POOL, name: 'other', lb_algorithm } }),
  },
  'l7policy.redirect_url': { values: ['http://a.example', 'http://b.example'], body: location('REDIRECT_TO_URL') },
  'l7policy.redirect_prefix': { values: ['http://a.example', 'http://b.example'], body: location('REDIRECT_PREFIX') },
  'l7policy.redirect_http_code': {
    body: redirect_http_code => ({ ...location('REDIRECT_TO_URL')('http://a.example'), redirect_http_code }),
  },
  'l7policy.position': {
    on: 'listeners',
    values: [1, 2],
    body: position => ({
      l7policies: [
        { action: 'REJECT', position: 1, rules: RULES },
        { ...location('REDIRECT_TO_URL')('http://a.example'), redirect_prefix: null, position, rules: RULES },
      ],
    }),
  },
  'rule.type': {
    body: type => ({
      type,
      compare_type: 'EQUAL_TO',
      key: type === 'SSL_CONN_HAS_CERT' || type === 'SSL_VERIFY_RESULT' ? null : 'k',
      value: type === 'SSL_CONN_HAS_CERT' ? 'true' : '1',
    }),
  },
  'rule.key': { values: ['a', 'b'], body: key => ({ type: 'HEADER', key }) },
  'rule.value': { values: ['/a', '/b'] },
}

/** The objects around one with an attribute to try, where the kernel balances and not HAProxy. */
const DATAGRAMS = {
  listeners: { protocol: 'UDP', protocol_port: 53, l7policies: [] },
  pools: { protocol: 'UDP' },
  healthmonitors: { type: 'UDP-CONNECT' },
}

const UDP_POOL = { ...POOL, protocol: 'UDP' }
const SOURCE_IP = { type: 'SOURCE_IP' }

/** The same for UDP and SCTP listeners, and what they use. */
const DATAGRAM_TRIALS: Readonly<Record<string, Trial>> = {
  'listener.protocol': {
    values: ['UDP', 'SCTP'],
    body: protocol => ({ protocol, default_pool: { ...POOL, protocol } }),
  },
  'listener.protocol_port': { values: [53, 54] },
  'listener.connection_limit': { values: [null, 0, 5] },
  'listener.default_pool_id': { values: [null, UDP_POOL], body: default_pool => ({ default_pool }) },
  'listener.timeout_client_data': { values: [null, 0, 9_000] },
  'listener.allowed_cidrs': { values: [null, ['192.0.2.0/24']] },
  'listener.admin_state_up': {},
  'pool.admin_state_up': {},
  'pool.lb_algorithm': {},
  'pool.session_persistence': {
    values: [
      null,
      SOURCE_IP,
      { ...SOURCE_IP, persistence_timeout: 9 },
      { ...SOURCE_IP, persistence_granularity: '255.255.255.0' },
    ],
  },
  'member.address': { values: ['192.0.2.10', '192.0.2.11'] },
  'member.protocol_port': { values: [80, 90] },
  'member.weight': { values: [null, 0, 7] },
  'member.backup': {},
  'member.admin_state_up': {},
  'member.monitor_address': { values: [null, '192.0.2.12'] },
  'member.monitor_port': { values: [null, 81] },
  'member.subnet_id': { values: [null, SUBNET.replace('1', '3')] },
  'healthmonitor.admin_state_up': {},
  'healthmonitor.type': { values: ['UDP-CONNECT', 'SCTP', 'TCP', 'HTTP', 'PING'] },
  'healthmonitor.delay': { values: [5, 6] },
  'healthmonitor.timeout': { values: [3, 4] },
  'healthmonitor.max_retries': { values: [2, 3], body: max_retries => ({ max_retries, max_retries_down: 2 }) },
  'healthmonitor.max_retries_down': { values: [null, 3] },
  'healthmonitor.url_path': { values: [null, '/', '/ping', '/ping?pong'] },
  'healthmonitor.http_method': { values: ['GET', 'HEAD'], body: http_method => ({ type: 'HTTP', http_method }) },
  'healthmonitor.expected_codes': {
    values: ['200', '204'],
    body: expected_codes => ({ type: 'HTTP', expected_codes }),
  },
  'healthmonitor.http_version': { values: [1, 1.1], body: http_version => ({ type: 'HTTP', http_version }) },
  'healthmonitor.domain_name': {
    values: [null, 'a.example'],
    body: domain_name => ({ type: 'HTTP', domain_name, http_version: 1.1 }),
  },
}

const NAMES = 'people read it, no machine does'
const OWNER = 'the owner; the log names the load balancer’s, and children follow their parent'
const PLACE = 'the parent of the object, tested with the object’s other attributes'

/** Attributes that change nothing on an amphora, and why. */
const WITHOUT_EFFECT: Readonly<Record<string, string>> = {
  name: NAMES,
  description: NAMES,
  tags: NAMES,
  project_id: OWNER,
  tenant_id: OWNER,
  loadbalancer_id: PLACE,
  listener_id: PLACE,
  pool_id: PLACE,
  'loadbalancer.vip_port_id': 'the VIP comes from the port',
  'loadbalancer.vip_subnet_id': 'the VIP comes from the subnet',
  'loadbalancer.vip_network_id': 'the VIP comes from the network',
  'loadbalancer.vip_sg_ids': 'the network worker filters the ports of amphorae by the groups of the VIP port',
  'loadbalancer.provider': 'it chooses the provider that reads the rest',
  'loadbalancer.flavor_id': 'it decides the topology when the load balancer is created',
  'loadbalancer.flavor': 'the same by name',
  'loadbalancer.availability_zone': 'it decides where amphorae are created',
  'member.request_sriov': 'refused unless the flavor allows it, and no flavor of this provider can',
}

const KINDS = ['loadbalancers', 'listeners', 'pools', 'members', 'healthmonitors', 'l7policies', 'rules']

/** All that an amphora gets from a tree: its configuration and its ports. */
function effectOf(tree: LoadBalancerTree): string {
  const plain = withPlainIds(tree)
  const subnets = [tree.vip, ...tree.additionalVips, ...tree.pools.flatMap(pool => pool.members)].flatMap(
    ({ subnetId }) => (subnetId === null ? [] : [noopSubnet(subnetId, '')]),
  )
  // the text and what it cannot express; the list of servers is only for changes while HAProxy runs
  const { haproxy, datagrams, interfaces } = renderDesired({ ...plain, topology: 'SINGLE' }, factsFor(plain))
  const ports = desiredPorts(tree, subnets, 'a').map(({ request }) => request.fixedIps)
  const delays = haproxy?.backends.map(({ deregistrationDelay }) => deregistrationDelay)
  return JSON.stringify([haproxy?.text, haproxy?.tls, delays, datagrams, interfaces, ports])
}

t.test('every option offered for amphorae changes the rendered state, or is listed here with the reason', async t => {
  const api = await startTestApi({ providers: ['amphora'], quota: { loadbalancer: -1 } })
  t.teardown(api.stop)
  const effectOfBody = (collection: string, body: Json) => effectOfTree(api, wholeTree(collection, body))
  t.equal(await effectOfBody('', {}), await effectOfBody('', {}), 'equal requests render equally')
  const unused = new Set([...Object.keys(TRIALS), ...Object.keys(WITHOUT_EFFECT)])
  for (const collection of KINDS) {
    const { singular, attributes } = RESOURCES[collection]?.resource ?? { singular: '', attributes: {} }
    for (const [name, { type, input }] of Object.entries(attributes)) {
      if (type === null || input === 'none') continue
      const key = `${singular}.${name}`
      const reason = [key, name].find(candidate => WITHOUT_EFFECT[candidate] !== undefined)
      if (reason !== undefined && TRIALS[key] === undefined) {
        unused.delete(reason)
        continue
      }
      const known = amphoraCapabilities(offersOf()).supported[singular]?.[name]
      const offered = typeof known === 'function' ? undefined : known
      const named: unknown = type.jsonSchema.enum
      const choices = Array.isArray(named) ? named : type.kind === 'boolean' ? [false, true] : null
      const trial = TRIALS[key] ?? {}
      unused.delete(key)
      const values: readonly JsonValue[] =
        trial.values ?? (choices ?? []).filter(choice => offered === undefined || offered.includes(choice))
      if (offered !== undefined && offered.length <= 1 && trial.values === undefined) continue
      await t.test(key, t =>
        differ(t, values, value => effectOfBody(trial.on ?? collection, trial.body?.(value) ?? { [name]: value })),
      )
    }
  }
  t.same([...unused], [], 'the tables name only existing attributes')
})

t.test('options of UDP and SCTP change the rendered state too', async t => {
  const api = await startTestApi({ providers: ['amphora'], quota: { loadbalancer: -1 } })
  t.teardown(api.stop)
  for (const [key, trial] of Object.entries(DATAGRAM_TRIALS)) {
    const [singular = '', name = ''] = key.split('.')
    const [collection = '', described] =
      Object.entries(RESOURCES).find(([, { resource }]) => resource.singular === singular) ?? []
    const type = described?.resource.attributes[name]?.type
    const values = trial.values ?? type?.jsonSchema.enum ?? [false, true]
    await t.test(key, t =>
      differ(t, values as JsonValue[], value =>
        effectOfTree(api, wholeTree(collection, trial.body?.(value) ?? { [name]: value }, DATAGRAMS)),
      ),
    )
  }
})

async function effectOfTree(api: TestApi, loadbalancer: Json): Promise<string> {
  const reply = await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer })
  if (reply.status !== 201) throw new Error(`${JSON.stringify(loadbalancer)}: ${reply.status} ${reply.text}`)
  const tree = await readTree(api.database, idIn(reply, 'loadbalancer'))
  if (tree === null) throw new Error('The load balancer is gone')
  return effectOf(tree)
}

/** Every value has another effect. */
async function differ(t: Test, values: readonly JsonValue[], effectOfValue: (value: JsonValue) => Promise<string>) {
  t.ok(values.length > 1, 'there are values to try')
  const effects = new Map<string, JsonValue>()
  for (const value of values) {
    const effect = await effectOfValue(value)
    t.notOk(
      effects.has(effect),
      `${JSON.stringify(value)} renders differently from ${JSON.stringify(effects.get(effect))}`,
    )
    effects.set(effect, value)
  }
}
