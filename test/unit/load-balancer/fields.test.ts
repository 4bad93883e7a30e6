import t from 'tap'
import { ApiError } from '../../../controller/http/errors.js'
import { RESOURCES } from '../../../controller/load-balancer/description/resources.js'
import { readBody, wrappedBodyWithLists } from '../../../controller/load-balancer/schema/input.js'
import { loadBalancerCreateSchema } from '../../../controller/load-balancer/tree/nested.js'

/**
 * How Octavia reads each field of a request, by the types that it declares. An `integer` or a `number` may come as
 * text, a `boolean` as text or as 0 and 1, and a `text` only as text. An `address`, an `id` and a `choice` are text of
 * a certain form.
 */
type Type = 'text' | 'integer' | 'number' | 'boolean' | 'address' | 'id' | 'choice' | 'list' | 'map' | 'object'

const NAMED = { name: 'text', description: 'text', tags: 'list', project_id: 'text', tenant_id: 'text' } as const
const SWITCHED = { ...NAMED, admin_state_up: 'boolean' } as const
const { description: _description, ...UNDESCRIBED } = SWITCHED
const { name: _name, ...UNNAMED } = UNDESCRIBED

const FIELDS: Readonly<Record<string, Readonly<Record<string, Type>>>> = {
  loadbalancer: {
    ...SWITCHED,
    ...{ vip_address: 'address', vip_port_id: 'id', vip_subnet_id: 'id', vip_network_id: 'id', vip_sg_ids: 'list' },
    ...{ additional_vips: 'list', provider: 'text', flavor_id: 'id', flavor: 'text', vip_qos_policy_id: 'id' },
    availability_zone: 'text',
  },
  listener: {
    ...SWITCHED,
    ...{ protocol: 'choice', protocol_port: 'integer', connection_limit: 'integer', loadbalancer_id: 'id' },
    ...{ default_tls_container_ref: 'text', sni_container_refs: 'list', default_pool_id: 'id', insert_headers: 'map' },
    ...{ timeout_client_data: 'integer', timeout_member_connect: 'integer', timeout_member_data: 'integer' },
    ...{ timeout_tcp_inspect: 'integer', client_ca_tls_container_ref: 'text', client_authentication: 'choice' },
    ...{ client_crl_container_ref: 'text', allowed_cidrs: 'list', tls_ciphers: 'text', tls_versions: 'list' },
    ...{ alpn_protocols: 'list', hsts_max_age: 'integer', hsts_include_subdomains: 'boolean', hsts_preload: 'boolean' },
  },
  pool: {
    ...SWITCHED,
    ...{ protocol: 'choice', lb_algorithm: 'choice', session_persistence: 'object', deregistration_delay: 'integer' },
    ...{ loadbalancer_id: 'id', listener_id: 'id', tls_container_ref: 'text', ca_tls_container_ref: 'text' },
    ...{ crl_container_ref: 'text', tls_enabled: 'boolean', tls_ciphers: 'text', tls_versions: 'list' },
    alpn_protocols: 'list',
  },
  member: {
    ...UNDESCRIBED,
    ...{ address: 'address', protocol_port: 'integer', weight: 'integer', backup: 'boolean', subnet_id: 'id' },
    ...{ monitor_address: 'address', monitor_port: 'integer', request_sriov: 'boolean' },
  },
  healthmonitor: {
    ...UNDESCRIBED,
    ...{ type: 'choice', delay: 'integer', timeout: 'integer', max_retries: 'integer', max_retries_down: 'integer' },
    ...{ http_method: 'choice', url_path: 'text', expected_codes: 'text', pool_id: 'id', http_version: 'number' },
    domain_name: 'text',
  },
  l7policy: {
    ...SWITCHED,
    ...{ action: 'choice', listener_id: 'id', redirect_pool_id: 'id', redirect_url: 'text', redirect_prefix: 'text' },
    ...{ position: 'integer', redirect_http_code: 'integer' },
  },
  rule: { ...UNNAMED, type: 'choice', compare_type: 'choice', key: 'text', value: 'text', invert: 'boolean' },
  flavor: { name: 'text', description: 'text', enabled: 'boolean', flavor_profile_id: 'id' },
  flavorprofile: { name: 'text', provider_name: 'text', flavor_data: 'text' },
  availability_zone: { name: 'text', description: 'text', enabled: 'boolean', availability_zone_profile_id: 'id' },
  availability_zone_profile: { name: 'text', provider_name: 'text', availability_zone_data: 'text' },
}

/** Values that fit a field of this type within its limits, and in how many forms Octavia takes each. */
function accepted(type: Type, schema: Readonly<Record<string, unknown>>): unknown[][] {
  if (type === 'boolean') {
    return [
      [true, 1, '1', 'true', 'True', 't', 'yes', 'y', 'on'],
      [false, 0, '0', 'false', 'False', 'f', 'no', 'n', 'off'],
    ]
  }
  if (type === 'integer' || type === 'number') {
    const bounds = [schema.minimum, schema.maximum].filter(bound => bound !== undefined)
    const values = Array.isArray(schema.enum) ? schema.enum : bounds
    return values.map(value => [
      value,
      String(value),
      ` ${value} `,
      ...(value === 1 && type === 'number' ? ['1.0'] : []),
    ])
  }
  return []
}

const REFUSED: Readonly<Record<Type, readonly unknown[]>> = {
  text: [7, true, [], {}],
  address: [7, true, '7', 'host', [], {}],
  id: [7, true, '7', [], {}],
  choice: [7, true, '7', [], {}],
  integer: ['seven', '', '1.5', 1.5, [], {}],
  number: ['seven', '', '9', 9, [], {}],
  boolean: ['maybe', '', 7, [], {}],
  list: [7, '7', true, {}],
  map: [7, '7', true, []],
  object: [7, '7', true, []],
}

t.test('each field of a request takes what Octavia takes', async t => {
  const described = Object.values(RESOURCES).filter(({ create }) => create !== undefined)
  t.same(described.map(({ resource }) => resource.singular).sort(), Object.keys(FIELDS).sort())
  for (const { resource } of described) {
    const settable = Object.entries(resource.attributes).filter(([, { input }]) => input !== 'none')
    const fields = FIELDS[resource.singular] ?? {}
    t.same(settable.map(([name]) => name).sort(), Object.keys(fields).sort(), `every field of a ${resource.singular}`)
    for (const [name, { type }] of settable) {
      const kind = fields[name]
      if (kind === undefined || type === null) throw new Error(`${resource.singular}.${name} has no type`)
      for (const [value, ...forms] of accepted(kind, type.jsonSchema)) {
        for (const form of [value, ...forms]) {
          t.same(type.read(form), { ok: true, value }, `${resource.singular}.${name}: ${JSON.stringify(form)}`)
        }
      }
      for (const value of REFUSED[kind]) {
        const reading = type.read(value)
        if (reading.ok) t.fail(`${resource.singular}.${name} takes ${JSON.stringify(value)}`)
        else t.match(reading.reason, /^Value (should|must) /, `${resource.singular}.${name}: ${JSON.stringify(value)}`)
      }
    }
  }
})

const WRONG = [0, -5, 99_999, 1.5, 1e30, 'x', '', ' ', 'a\0b', 'x'.repeat(3000), true, [], {}, [7], { a: 1 }, null]

const REFUSAL =
  /^(Invalid input for field\/attribute [\w.[\]]+\. Value: '.{0,203}'\. (Value (should|must) .|Mandatory field missing\.|A key should .)|Unknown attributes? for argument [\w.]+: .)/s

t.test('a refusal names the attribute, the value and what is wrong', async t => {
  const [texts, wrong] = [new Set<string>(), new Set<string>()]
  for (const { resource, create, update } of Object.values(RESOURCES)) {
    const { singular, attributes } = resource
    for (const schema of [create, update]) {
      if (schema === undefined) continue
      const body = wrappedBodyWithLists(singular, schema)
      const refusal = async (values: unknown): Promise<string> => {
        try {
          await readBody(body, { [singular]: values })
          return ''
        } catch (error) {
          if (error instanceof ApiError && error.status === 400) return error.message
          throw error
        }
      }
      for (const name of [...Object.keys(attributes), 'bogus']) {
        for (const value of WRONG) {
          const text = await refusal({ [name]: value })
          const about = text.split('; ').filter(sentence => new RegExp(`(attribute|: ) ?${name}\\b`).test(sentence))
          for (const sentence of about) {
            texts.add(sentence.replace(/Value: '.*'\. /s, ''))
            if (!REFUSAL.test(sentence) || /(expected|received|undefined|Invalid input:) /.test(sentence))
              wrong.add(sentence)
          }
        }
      }
      for (const values of WRONG) {
        const text = await refusal(values)
        if (text !== '') t.match(text, /^(Invalid input for field\/attribute |Unknown attribute)/)
      }
    }
  }
  t.same([...wrong], [])
  t.ok(texts.size > 100, `${texts.size} texts`)
})

t.test('numbers as text count everywhere in a tree', async t => {
  const pool = {
    ...{ name: 'p', protocol: 'UDP', lb_algorithm: 'ROUND_ROBIN', deregistration_delay: '9' },
    session_persistence: { type: 'SOURCE_IP', persistence_timeout: '60' },
    members: [{ address: '192.0.2.1', protocol_port: '80', weight: '7', backup: 'true', monitor_port: '81' }],
    healthmonitor: { type: 'HTTP', delay: '5', timeout: '3', max_retries: '2', http_version: '1.1' },
  }
  const policy = { action: 'REDIRECT_TO_URL', redirect_url: 'http://a', redirect_http_code: '308', position: '1' }
  const listener = { protocol: 'HTTP', protocol_port: '80', timeout_client_data: '1000', l7policies: [policy] }
  const read = await loadBalancerCreateSchema.parseAsync({ listeners: [listener], pools: [pool] })
  t.match(read, {
    listeners: [
      { protocol_port: 80, timeout_client_data: 1000, l7policies: [{ redirect_http_code: 308, position: 1 }] },
    ],
    pools: [
      {
        deregistration_delay: 9,
        session_persistence: { persistence_timeout: 60 },
        members: [{ protocol_port: 80, weight: 7, backup: true, monitor_port: 81 }],
        healthmonitor: { delay: 5, timeout: 3, max_retries: 2, http_version: 1.1 },
      },
    ],
  })
})
