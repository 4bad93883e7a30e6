import fc from 'fast-check'
import t from 'tap'
import { z } from 'zod'
import type { Attributes } from '../../controller/load-balancer/attributes.js'
import { availabilityZoneProfile } from '../../controller/load-balancer/availability-zone-profiles/resource.js'
import { availabilityZone } from '../../controller/load-balancer/availability-zones/resource.js'
import { flavorProfile } from '../../controller/load-balancer/flavor-profiles/resource.js'
import { flavor } from '../../controller/load-balancer/flavors/resource.js'
import { healthMonitor } from '../../controller/load-balancer/health-monitors/resource.js'
import { l7Policy } from '../../controller/load-balancer/l7-policies/resource.js'
import { l7Rule } from '../../controller/load-balancer/l7-rules/resource.js'
import { listener } from '../../controller/load-balancer/listeners/resource.js'
import { loadBalancer } from '../../controller/load-balancer/load-balancers/resource.js'
import { member } from '../../controller/load-balancer/members/resource.js'
import { pool } from '../../controller/load-balancer/pools/resource.js'
import { OWN, SUBNET, startTestApi, tokenOf } from '../support/load-balancer-api.js'
import { makeWorld, OFFERED } from '../support/load-balancer-world.js'

/** Text as HTTP can carry it: without halves of surrogate pairs. */
const wellFormed = (text: string): string => Buffer.from(text).toString()

/** Values of an attribute: good ones by its own JSON Schema, and anything. */
function arbitraryOf(schema: Readonly<Record<string, unknown>>): fc.Arbitrary<unknown> {
  const choices = schema.enum
  if (Array.isArray(choices)) return fc.constantFrom<unknown>(...choices)
  switch (schema.type) {
    case 'integer':
      return fc.integer({ min: Math.max(Number(schema.minimum), -10), max: Math.min(Number(schema.maximum), 70_000) })
    case 'boolean':
      return fc.boolean()
    case 'array':
      return fc.array(arbitraryOf(Object(schema.items)), { maxLength: 3 })
    case 'object':
      return fc.dictionary(
        fc.string({ unit: 'binary', maxLength: 8 }),
        fc.oneof(fc.string({ unit: 'binary' }), fc.jsonValue()),
        { maxKeys: 3 },
      )
    default:
      if (schema.format === 'uuid') return fc.uuid()
      return Array.isArray(schema.anyOf)
        ? fc.oneof(fc.ipV4(), fc.ipV6())
        : fc.string({ unit: 'binary', maxLength: 300 })
  }
}

const bodyOf = (
  attributes: Attributes,
  only: 'create' | 'update',
  known: Readonly<Record<string, unknown>>,
): fc.Arbitrary<object> => {
  const entries = Object.entries(attributes).filter(
    ([, { input }]) => input === 'create-and-update' || (only === 'create' && input === 'create'),
  )
  const fields = entries.map(([name, { type }]) => {
    const good = Object.hasOwn(known, name) ? fc.constant(known[name]) : arbitraryOf(type?.jsonSchema ?? {})
    return [
      name,
      fc.oneof(
        { weight: 30, arbitrary: good },
        { weight: 1, arbitrary: fc.jsonValue() },
        { weight: 1, arbitrary: fc.constant(null) },
      ),
    ] as const
  })
  const required = entries.filter(([, attribute]) => attribute.required).map(([name]) => name)
  return fc.record(Object.fromEntries(fields), { requiredKeys: required })
}

t.test('whatever is sent, the answer has the API’s own shape and is never an unexpected error', async t => {
  const api = await startTestApi(OFFERED)
  t.teardown(api.stop)
  const world = await makeWorld(api)
  const tally = new Map<number, number>()
  const fault = z.strictObject({
    faultcode: z.enum(['Client', 'Server']),
    faultstring: z.string().min(1),
    debuginfo: z.null(),
  })
  const routed = z.strictObject({ ...fault.shape, code: z.int(), title: z.string(), description: z.string() })
  const check = async (method: string, path: string, body?: unknown, token = tokenOf('member')) => {
    const reply = await api.ask(method, path, body, token)
    tally.set(reply.status, (tally.get(reply.status) ?? 0) + 1)
    if (reply.status < 400) return
    if (reply.status >= 500 && reply.status !== 501)
      throw new Error(`${method} ${path} ${JSON.stringify(body)}: ${reply.status} ${reply.text}`)
    if (!z.union([fault, routed]).safeParse(reply.body).success) throw new Error(`${method} ${path}: ${reply.text}`)
  }
  const run = <T>(arbitrary: fc.Arbitrary<T>, body: (value: T) => Promise<void>, numRuns = 60) =>
    fc.assert(fc.asyncProperty(arbitrary, body), { numRuns, endOnFailure: true })
  const known = {
    loadbalancer_id: world.lb,
    pool_id: world.pool,
    listener_id: world.listener,
    default_pool_id: world.pool,
    redirect_pool_id: world.pool,
    redirect_url: 'http://a.example',
    redirect_prefix: 'https://a.example',
    vip_subnet_id: SUBNET,
    vip_port_id: null,
    vip_network_id: null,
    provider: 'amphora',
    provider_name: 'amphora',
    flavor_profile_id: world.flavorProfile,
    availability_zone_profile_id: world.zoneProfile,
    flavor_data: '{"loadbalancer_topology": "SINGLE"}',
    project_id: OWN,
    tenant_id: OWN,
  }
  const targets = [
    [loadBalancer, 'loadbalancers', world.lb],
    [listener, 'listeners', world.listener],
    [pool, 'pools', world.pool],
    [member, `pools/${world.pool}/members`, world.member],
    [healthMonitor, 'healthmonitors', world.monitor],
    [l7Policy, 'l7policies', world.policy],
    [l7Rule, `l7policies/${world.policy}/rules`, world.rule],
    [flavor, 'flavors', world.flavor],
    [flavorProfile, 'flavorprofiles', world.flavorProfile],
    [availabilityZone, 'availabilityzones', world.zoneProfile],
    [availabilityZoneProfile, 'availabilityzoneprofiles', world.zoneProfile],
  ] as const
  for (const [resource, path, id] of targets) {
    await t.test(resource.label, async () => {
      const attributes: Attributes = resource.attributes
      const token = tokenOf(resource.project === null ? 'admin' : 'member')
      await run(bodyOf(attributes, 'create', known), body =>
        check('POST', `/v2/lbaas/${path}`, { [resource.singular]: body }, token),
      )
      await run(bodyOf(attributes, 'update', known), body =>
        check('PUT', `/v2/lbaas/${path}/${id}`, { [resource.singular]: body }, token),
      )
      await run(fc.jsonValue(), body => check('POST', `/v2/lbaas/${path}`, body, token), 30)
      const name = fc.oneof(
        {
          weight: 5,
          arbitrary: fc.constantFrom(
            ...Object.keys(attributes),
            'sort',
            'sort_key',
            'sort_dir',
            'limit',
            'marker',
            'page_reverse',
            'fields',
            'tags',
            'not-tags-any',
          ),
        },
        fc.string(),
      )
      const value = fc.oneof(
        fc.string({ unit: 'binary' }),
        fc.constantFrom(
          '1',
          'true',
          'name:desc',
          'id',
          '-1',
          '99999999999999999999',
          '1e9',
          world.lb,
          '2026-01-01T00:00:00',
          "'; --",
          '2026-02-31T25:61:61',
        ),
      )
      await run(
        fc.array(fc.tuple(name, value), { maxLength: 4 }),
        pairs =>
          check(
            'GET',
            `/v2/lbaas/${path}?${new URLSearchParams(pairs.map(([key, text]): [string, string] => [wellFormed(key), wellFormed(text)]))}`,
            undefined,
            token,
          ),
        80,
      )
    })
  }
  await t.test('batches, paths and broken JSON', async () => {
    await run(fc.array(bodyOf(member.attributes, 'create', {}), { maxLength: 4 }), body =>
      check('PUT', `/v2/lbaas/pools/${world.pool}/members`, body),
    )
    await run(fc.webPath(), path => check('GET', `/v2/lbaas${path}`))
    await run(fc.string({ unit: 'binary', minLength: 1 }), body =>
      check('POST', '/v2/lbaas/loadbalancers', wellFormed(body)),
    )
    await run(fc.string({ unit: 'binary', minLength: 1 }), id =>
      check('GET', `/v2/lbaas/listeners/${encodeURIComponent(wellFormed(id))}`),
    )
    for (const path of [
      '/v2/lbaas/pools/%E0%A4%A',
      '/v2/lbaas/pools/%00',
      '//',
      '/v2//lbaas',
      '/v2/lbaas/pools/..%2f..',
    ])
      await check('GET', path)
  })
  t.ok(
    (tally.get(201) ?? 0) > 10 && (tally.get(200) ?? 0) > 20 && (tally.get(400) ?? 0) > 50,
    `the tries reach deep enough: ${JSON.stringify([...tally])}`,
  )
})
