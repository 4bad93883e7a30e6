import fc from 'fast-check'
import t from 'tap'
import type * as z from 'zod'
import { configurationSchema } from '../../../controller/config/schema.js'
import { ApiError } from '../../../controller/http/errors.js'
import {
  completeMonitor,
  completeMonitorUpdate,
} from '../../../controller/load-balancer/objects/health-monitors/rules.js'
import { listener } from '../../../controller/load-balancer/objects/listeners/resource.js'
import { checkPoolUse } from '../../../controller/load-balancer/objects/listeners/rules.js'
import { member } from '../../../controller/load-balancer/objects/members/resource.js'
import { checkMember, checkMembers } from '../../../controller/load-balancer/objects/members/rules.js'
import { pool } from '../../../controller/load-balancer/objects/pools/resource.js'
import { readBody, wrappedBody, wrappedBodyWithLists } from '../../../controller/load-balancer/schema/input.js'
import { parseListQuery } from '../../../controller/load-balancer/schema/list-query.js'
import { createSchema, updateSchema } from '../../../controller/load-balancer/schema/resource.js'
import { listenerCreateSchema, loadBalancerCreateSchema } from '../../../controller/load-balancer/tree/nested.js'
import { planObjects } from '../../../controller/load-balancer/tree/new-objects.js'
import { planBatch } from '../../../controller/load-balancer/tree/plan-batch.js'

const SETTINGS = configurationSchema.parse({}).load_balancer
const ID = '9691cd7d-d516-4a8e-902e-112909ae987d'

/** The status and message of an API error that `body` throws. */
function refusal(body: () => unknown): { status: number; message: string } {
  try {
    body()
  } catch (error) {
    if (error instanceof ApiError) return { status: error.status, message: error.message }
    throw error
  }
  return { status: 0, message: 'nothing was thrown' }
}

/** Reads `{"<wrapper>": {...}}` as the API does. @throws ApiError 400 */
const readWrapped = <T>(body: unknown, wrapper: string, inside: z.ZodType<T>) =>
  readBody(wrappedBody(wrapper, inside), body) as T
const readWrappedLists = async <T>(body: unknown, wrapper: string, inside: z.ZodType<T>) =>
  readBody(wrappedBodyWithLists(wrapper, inside), body)

t.test('request bodies', async t => {
  const create = createSchema(listener)
  const update = updateSchema(listener)
  const message = (body: unknown, schema: typeof create | typeof update = create) =>
    refusal(() => readWrapped<unknown>(body, 'listener', schema)).message
  const valid = { loadbalancer_id: ID, protocol: 'HTTP', protocol_port: 80 }

  await t.test('a create fills in defaults; null mostly means not given', async t => {
    t.match(
      readWrapped({ listener: { ...valid, connection_limit: null, tags: null, name: null } }, 'listener', create),
      {
        connection_limit: -1,
        tags: [],
        name: '',
        admin_state_up: true,
        timeout_client_data: 50_000,
        default_pool_id: null,
      },
    )
    t.match(readWrapped({ listener: { ...valid, admin_state_up: null } }, 'listener', create), {
      admin_state_up: false,
    })
  })
  await t.test('an update contains only what was given; null resets to the default, except for tags', async t => {
    t.strictSame(readWrapped({ listener: { connection_limit: null, description: null } }, 'listener', update), {
      connection_limit: -1,
      description: '',
    })
    t.equal(readWrapped({ listener: { tags: null } }, 'listener', update).tags, undefined)
  })
  await t.test('every invalid attribute is named in Octavia’s words', async t => {
    t.equal(
      message({ listener: { ...valid, protocol_port: 0 } }),
      `Invalid input for field/attribute protocol_port. Value: '0'. Value should be greater or equal to 1`,
    )
    t.equal(
      message({ listener: { loadbalancer_id: ID, protocol: 'HTTP' } }),
      `Invalid input for field/attribute protocol_port. Value: 'None'. Mandatory field missing.`,
    )
    t.equal(message({ listener: { ...valid, bogus: 1 } }), 'Unknown attribute for argument listener: bogus')
    t.equal(
      message({ listener: { ...valid, bogus: 1, other: 2 } }),
      'Unknown attributes for argument listener: bogus, other',
    )
    t.equal(message({ listener: valid, extra: 1 }), 'Unknown attribute for argument body: extra')
    t.match(message({}), /attribute listener\. Value: 'None'\. Mandatory field missing\./)
    t.match(message([]), /Value should be an object/)
    t.equal(
      message({ listener: { protocol: 'HTTP' } }, update),
      'Unknown attribute for argument listener: protocol',
      'an immutable attribute is unknown to an update',
    )
    t.match(message({ listener: { ...valid, name: 5, tags: 'x' } }), /attribute name\..*attribute tags\./)
    t.match(
      message(JSON.parse('{"listener": {"__proto__": {"a": 1}}}'), update),
      /Unknown attribute for argument listener: __proto__/,
    )
  })
  await t.test('an attribute of a nested object is named by its path', async t => {
    const body = {
      loadbalancer: {
        vip_subnet_id: ID,
        listeners: [
          {
            protocol: 'HTTP',
            protocol_port: 80,
            default_pool: { name: 'p', members: [{ address: 'x', protocol_port: 1 }] },
          },
        ],
      },
    }
    await t.rejects(readWrappedLists(body, 'loadbalancer', loadBalancerCreateSchema), {
      message: `Invalid input for field/attribute listeners[0].default_pool.members[0].address. Value: 'x'. Value should be IPv4 or IPv6 format`,
    })
  })
})

t.test('a pool’s protocol must suit its listener’s', async t => {
  t.match(
    refusal(() => checkPoolUse('HTTP', { protocol: 'TCP', session_persistence: null })),
    {
      status: 400,
      message: `Validation failure: The pool protocol 'TCP' is invalid while the listener protocol is 'HTTP'.`,
    },
  )
  for (const protocol of ['TCP', 'HTTP', 'HTTPS', 'PROXY', 'PROXYV2'])
    t.equal(refusal(() => checkPoolUse('TCP', { protocol, session_persistence: { type: 'SOURCE_IP' } })).status, 0)
  t.equal(refusal(() => checkPoolUse('PROMETHEUS', { protocol: 'HTTP', session_persistence: null })).status, 400)
  for (const type of ['HTTP_COOKIE', 'APP_COOKIE']) {
    const byCookie = { protocol: 'HTTP', session_persistence: { type } }
    for (const reading of ['HTTP', 'TERMINATED_HTTPS'])
      t.equal(refusal(() => checkPoolUse(reading, byCookie)).status, 0, `${reading} reads a cookie`)
    t.match(
      refusal(() => checkPoolUse('TCP', byCookie)),
      { status: 400, message: /a TCP listener does not read/ },
    )
  }
})

t.test('health monitors get their defaults, and options that do not fit are refused', async t => {
  const monitor = {
    name: '',
    admin_state_up: true,
    project_id: null,
    tenant_id: null,
    tags: [],
    delay: 5,
    timeout: 3,
    max_retries: 4,
    max_retries_down: null,
    http_method: null,
    url_path: null,
    expected_codes: null,
    http_version: null,
    domain_name: null,
  }
  t.match(completeMonitor(SETTINGS, { ...monitor, type: 'HTTP' }), {
    max_retries_down: 4,
    http_method: 'GET',
    url_path: '/',
    expected_codes: '200',
  })
  t.match(completeMonitor(SETTINGS, { ...monitor, type: 'TCP' }), {
    http_method: null,
    url_path: null,
    expected_codes: null,
  })
  t.match(
    refusal(() => completeMonitor(SETTINGS, { ...monitor, type: 'TCP', url_path: '/' })),
    { status: 400, message: /url_path/ },
  )
  t.match(
    refusal(() => completeMonitor(SETTINGS, { ...monitor, type: 'HTTP', domain_name: 'a.b' })),
    { status: 400, message: /http_version/ },
  )
  t.match(
    refusal(() => completeMonitor(SETTINGS, { ...monitor, type: 'HTTP', domain_name: 'a.b', http_version: 1.0 })),
    { status: 400, message: /1\.1/ },
  )
  const stored = { type: 'HTTP', max_retries: 4, http_version: 1.1, domain_name: null, admin_state_up: true } as const
  t.strictSame(
    completeMonitorUpdate(SETTINGS, stored, { domain_name: 'a.b' }),
    { domain_name: 'a.b' },
    'the stored http_version applies',
  )
  t.equal(
    refusal(() => completeMonitorUpdate(SETTINGS, { ...stored, domain_name: 'a.b' }, { http_version: null })).status,
    400,
  )
  t.strictSame(completeMonitorUpdate(SETTINGS, stored, { max_retries_down: null, url_path: null }), {
    max_retries_down: 4,
    url_path: '/',
  })
})

const failing = (status: number) => ({ status, message: /./ })

t.test('a tree of objects in one body', async t => {
  const plan = async (loadbalancer: object) => {
    const body = await readWrappedLists(
      { loadbalancer: { vip_subnet_id: ID, ...loadbalancer } },
      'loadbalancer',
      loadBalancerCreateSchema,
    )
    return planObjects(body.listeners, body.pools, SETTINGS)
  }
  const definition = { name: 'web', protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' }
  const http = { protocol: 'HTTP', protocol_port: 80 }
  await t.test('a name alone refers to a definition elsewhere in the body', async t => {
    const { pools, listeners } = await plan({
      pools: [definition],
      listeners: [{ ...http, default_pool: { name: 'web' } }],
    })
    t.equal(pools.length, 1)
    t.equal(listeners[0]?.defaultPoolId, pools[0]?.id)
    const two = await plan({
      listeners: [
        { ...http, default_pool: definition },
        { ...http, protocol_port: 81, default_pool: { name: 'web', admin_state_up: true } },
      ],
    })
    t.equal(two.pools.length, 1)
    t.equal(two.listeners[1]?.defaultPoolId, two.pools[0]?.id)
  })
  await t.test('incomplete or contradictory trees are refused', async t => {
    await t.rejects(
      plan({ listeners: [{ ...http, default_pool: { name: 'web' } }] }),
      failing(400),
      'a reference without a definition',
    )
    await t.rejects(
      plan({ listeners: [{ ...http, default_pool: { protocol: 'HTTP', lb_algorithm: 'ROUND_ROBIN' } }] }),
      failing(400),
      'a definition without a name',
    )
    await t.rejects(plan({ pools: [definition, definition] }), failing(400), 'a name defined twice')
    await t.rejects(plan({ pools: [{ name: 'a', protocol: 'HTTP' }] }), { ...failing(400), message: /lb_algorithm/ })
    await t.rejects(plan({ pools: [{ name: 'a' }] }), { ...failing(400), message: /protocol/ })
    await t.rejects(plan({ listeners: [{ ...http, default_pool_id: ID }] }), failing(404))
    await t.rejects(plan({ listeners: [http, { ...http, protocol: 'TCP' }] }), failing(409), 'a port used twice')
    await t.rejects(
      plan({ listeners: [{ ...http, default_pool: { ...definition, protocol: 'TCP' } }] }),
      failing(400),
      'protocols that do not match',
    )
    const twice = { address: '10.0.0.1', protocol_port: 80 }
    await t.rejects(plan({ pools: [{ ...definition, members: [twice, twice] }] }), failing(409))
    await t.rejects(
      plan({
        pools: [{ ...definition, healthmonitor: { type: 'UDP-CONNECT', delay: 5, timeout: 3, max_retries: 2 } }],
      }),
      failing(400),
    )
    await t.rejects(
      readWrappedLists(
        { listener: { ...http, loadbalancer_id: ID, default_pool: { pool_id: 1 } } },
        'listener',
        listenerCreateSchema,
      ),
      failing(400),
    )
  })
})

const NO_HOST = new Map()
const OF_NETWORK = { config: SETTINGS, network: { reachesHost: true } }

t.test('every member of a long list is checked', async t => {
  const many = Array.from({ length: 250 }, (_, n) => ({ address: `10.0.0.${n}` }))
  await checkMembers(OF_NETWORK, many)
  for (const at of [0, 99, 100, 249]) {
    await t.rejects(
      checkMembers(OF_NETWORK, many.with(at, { address: '169.254.169.254' })),
      { message: /not a valid option/ },
      String(at),
    )
  }
})

t.test('the metadata service’s address is refused as a member in every spelling', async t => {
  for (const address of [
    '169.254.169.254',
    '::ffff:169.254.169.254',
    '::FFFF:A9FE:A9FE',
    '0:0:0:0:0:ffff:a9fe:a9fe',
    '0::ffff:169.254.169.254',
  ]) {
    t.equal(refusal(() => checkMember(SETTINGS, { address }, NO_HOST)).status, 400, address)
    t.equal(refusal(() => checkMember(SETTINGS, { monitor_address: address }, NO_HOST)).status, 400, address)
  }
  fc.assert(
    fc.property(
      fc.ipV4().filter(text => !/^(0|127|22[4-9]|23\d|24\d|25\d)\./.test(text)),
      fc.integer({ min: 1, max: 0xffff }).map(number => number.toString(16)),
      (text, digit) =>
        [text, `::ffff:${text}`, `2001:db8::${digit}`, `fd00::${digit}`].every(
          address => refusal(() => checkMember(SETTINGS, { address }, NO_HOST)).status === 0,
        ),
    ),
    { examples: [['169.254.169.253', '1']] },
  )
  t.equal(refusal(() => checkMember(SETTINGS, { address: '1:2:3:4:5:6:1.2.3.4' }, NO_HOST)).status, 0)
})

t.test('loopback, unspecified and multicast addresses are refused as members in every spelling', async t => {
  for (const address of [
    '127.0.0.1',
    '127.8.9.10',
    '::ffff:127.0.0.1',
    '::FFFF:7F00:1',
    '::1',
    '0:0:0:0:0:0:0:1',
    '0.0.0.0',
    '0.1.2.3',
    '::',
    '::ffff:0.0.0.0',
    '224.0.0.18',
    'ff02::1',
    '255.255.255.255',
  ]) {
    t.equal(refusal(() => checkMember(SETTINGS, { address }, NO_HOST)).status, 400, address)
    t.equal(refusal(() => checkMember(SETTINGS, { monitor_address: address }, NO_HOST)).status, 400, address)
  }
})

t.test('a member on the controller’s host needs a port that the operator allows', t => {
  const host = new Map([
    ['10.77.16.1', { isPublic: true }],
    ['10.77.0.1', { isPublic: false }],
    ['fd00::1', { isPublic: false }],
  ])
  const settings = { ...SETTINGS, host_member_ports: [8080], host_member_udp_ports: [53] }
  const check = (values: Parameters<typeof checkMember>[1]) => refusal(() => checkMember(settings, values, host)).status
  t.equal(check({ address: '10.77.16.1', protocol_port: 8080 }), 0)
  t.equal(check({ address: '10.77.16.1', protocol_port: 53 }), 0)
  t.equal(check({ address: '10.77.16.1', protocol_port: 22 }), 400)
  t.equal(check({ address: '10.77.16.1', protocol_port: 8080, monitor_port: 5432 }), 400)
  t.equal(check({ address: '10.77.32.5', protocol_port: 80, monitor_address: '10.77.16.1' }), 400)
  t.equal(check({ monitor_port: 22 }), 0, 'the address is unknown in this update')
  for (const address of ['10.77.0.1', 'fd00::1', '::ffff:10.77.0.1']) {
    t.equal(check({ address, protocol_port: 8080 }), 400, address)
  }
  t.end()
})

t.test('a batch creates, updates and removes members by address and port', async t => {
  const desired = (address: string, extra: object = {}) => ({
    values: createSchema(member).parse({ address, protocol_port: 80, ...extra }),
    given: new Set(Object.keys(extra)),
  })
  const existing = ['10.0.0.1', '10.0.0.2'].map((address, index) => ({
    id: `id${index + 1}`,
    address,
    protocol_port: 80,
  }))
  const plan = planBatch(existing, [desired('10.0.0.2'), desired('10.0.0.3')], false)
  t.match(plan, { create: [{ values: { address: '10.0.0.3' } }], update: [{ id: 'id2' }], remove: ['id1'] })
  t.same(planBatch(existing, [desired('10.0.0.3')], true).remove, [], 'an additive batch removes nothing')
  t.same(planBatch(existing, [], false).remove, ['id1', 'id2'])
  t.equal(refusal(() => planBatch(existing, [desired('10.0.0.1'), desired('10.0.0.1')], false)).status, 400)
  t.equal(refusal(() => planBatch(existing, [desired('10.0.0.9'), desired('10.0.0.9')], false)).status, 409)
})

t.test('list parameters are parsed, or refused in Octavia’s words', async t => {
  const parse = (query: string) => parseListQuery(listener, query, SETTINGS)
  t.match(parse('limit=5&page_reverse=true&fields=id,name&fields=tags'), {
    limit: 5,
    reverse: true,
    fields: new Set(['id', 'name', 'tags']),
  })
  t.match(
    [parse('').limit, parse('limit=5000').limit, parse('limit=0').limit, parse('limit=infinite').limit],
    [1000, 1000, null, null],
  )
  t.match(parse('sort=name:desc,created_at').sort, [{ descending: true }, { sql: 'o.created_at', descending: false }])
  t.match(parse('sort_key=name,protocol_port&sort_dir=desc').sort, [{ descending: true }, { descending: false }])
  t.match(
    parse('sort=name:desc,name,name').sort,
    { length: 1, 0: { descending: true } },
    'a repeated sort key counts once',
  )
  t.same(
    parse('id=web').filters.map(({ text, values }) => ({ text, values })),
    [{ text: 'false', values: [] }],
    'a filter by an invalid id finds nothing',
  )
  const refusals: [string, RegExp][] = [
    ['bogus=1', /duplicate or invalid/],
    ['name=a&name=b', /duplicate or invalid/],
    ['tenant_id=x', /duplicate or invalid/],
    ['loadbalancers=x', /duplicate or invalid/],
    ['__proto__=x', /duplicate or invalid/],
    ['limit=x', /pagination limit 'x' is not valid/],
    ['marker=x', /pagination marker 'x' is not valid/],
    ['sort=bogus', /sort key 'bogus' is not valid/],
    ['sort=constructor', /sort key 'constructor' is not valid/],
    ['sort=name:up', /sort direction 'up' is not valid/],
    ['protocol_port=x', /attribute protocol_port/],
    ['admin_state_up=x', /attribute admin_state_up/],
    ['created_at=yesterday', /attribute created_at/],
    ['created_at=0000-01-01T00:00:00', /attribute created_at/],
    ['name=%00', /NUL/],
  ]
  for (const [query, message] of refusals)
    t.match(
      refusal(() => parse(query)),
      { status: 400, message },
      query,
    )
})

t.test('the tree reads session persistence that earlier versions stored', async t => {
  const read = (stored: unknown) => pool.attributes.session_persistence.inTree.parse(stored)
  const unset = { cookieName: null, persistenceTimeout: null, persistenceGranularity: null }
  t.equal(read(null), null)
  t.equal(read({ type: null, cookie_name: null, persistence_timeout: null, persistence_granularity: null }), null)
  t.same(read({ type: 'SOURCE_IP' }), { type: 'SOURCE_IP', ...unset })
  t.same(read({ type: 'APP_COOKIE', cookie_name: 'c' }), { type: 'APP_COOKIE', ...unset, cookieName: 'c' })
  t.throws(() => read({ type: 'ELSE' }))
})
