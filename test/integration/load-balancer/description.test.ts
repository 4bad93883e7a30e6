import { Validator } from '@seriousme/openapi-schema-validator'
import t from 'tap'
import { loadBalancerDescription } from '../../../controller/load-balancer/api/description.js'
import { ROUTES } from '../../../controller/load-balancer/api.js'
import { RESOURCES } from '../../../controller/load-balancer/description/resources.js'
import { tokenOf } from '../../support/clients/callers.js'
import { checkExamples } from '../../support/clients/described-api.js'
import { at, type Json, type JsonValue } from '../../support/clients/json-answers.js'
import { SUBNET, startTestApi, type TestApi } from '../../support/clients/load-balancer-api.js'
import { loadBalancerRoutes } from '../../support/inputs/load-balancer-routes.js'

const document = JSON.parse(JSON.stringify(loadBalancerDescription(ROUTES, 'union'))) as Json
const schemaOf = (name: string): Json => Object(at(document, 'components', 'schemas', name))
const routes = [...loadBalancerRoutes.keys()]

t.test('the document is valid OpenAPI 3.1', async t => {
  const validator = new Validator()
  const result = await validator.validate(structuredClone(document))
  t.same(result.errors, undefined)
  t.equal(result.valid, true)
  t.equal(validator.version, '3.1')
})

t.test('every route is described with its body, answer and parameters', async t => {
  for (const route of routes) {
    const [method = '', pattern = ''] = route.split(' ')
    const path = `/v2${pattern.replace(/:(\w+)/g, '{$1}')}`
    const operation = at(document, 'paths', path, method.toLowerCase())
    t.ok(operation, `${route} is in the document`)
    t.type(at(operation, 'summary'), 'string', route)
    if (method === 'POST') t.ok(at(operation, 'requestBody'), `${route} has a body`)
    if (method === 'GET') t.ok(at(operation, 'responses', '200', 'content'), `${route} has an answer`)
    const parameters = at(document, 'paths', path, 'parameters')
    t.equal(
      Array.isArray(parameters) ? parameters.length : 0,
      pattern.split(':').length - 1,
      `${route} has its parameters`,
    )
  }
  const ids = Object.values(Object(document.paths) as Record<string, Json>).flatMap(item =>
    Object.values(item).flatMap(operation => at(operation, 'operationId') ?? []),
  )
  t.equal(new Set(ids).size, ids.length, 'operation ids are unique')
})

t.test('every operation has an example', async t => {
  checkExamples(t, document as unknown as Parameters<typeof checkExamples>[1])
})

t.test('every attribute has a description', async t => {
  for (const { resource } of Object.values(RESOURCES)) {
    const nameless = Object.entries(resource.attributes).filter(([, { about }]) => about === '')
    t.same(nameless, [], resource.label)
  }
  const nameless: string[] = []
  const walk = (schema: JsonValue | undefined, path: string): void => {
    if (Array.isArray(schema)) for (const [index, inner] of schema.entries()) walk(inner, `${path}.${index}`)
    if (typeof schema !== 'object' || Array.isArray(schema)) return
    for (const [name, inner] of Object.entries(Object(at(schema, 'properties')) as Json)) {
      if (at(inner, 'description') === undefined) nameless.push(`${path}.${name}`)
      walk(inner, `${path}.${name}`)
    }
    for (const key of ['items', 'anyOf']) walk(at(schema, key), path)
  }
  for (const name of Object.keys(Object(at(document, 'components', 'schemas')))) {
    if (/_(create|update)$/.test(name)) walk(schemaOf(name), name)
  }
  t.same(nameless, [], 'every key inside request bodies has one too')
})

t.test('bounds, defaults and nullability match the API', async t => {
  const listener = schemaOf('listener_create')
  t.match(at(listener, 'properties', 'protocol_port'), {
    type: 'integer',
    minimum: 1,
    maximum: 65535,
    description: String,
  })
  t.match(at(listener, 'properties', 'connection_limit'), { type: ['integer', 'null'], default: -1 })
  t.match(at(listener, 'properties', 'protocol'), { type: 'string', enum: ['HTTP'] })
  t.strictSame(listener.required, ['protocol', 'protocol_port', 'loadbalancer_id'])
  t.equal(listener.additionalProperties, false)
  t.notOk(at(schemaOf('listener_update'), 'properties', 'protocol'), 'immutable attributes are not in update schemas')
  t.notOk(at(schemaOf('listener_update'), 'properties', 'name', 'default'), 'an update schema has no defaults')
  t.match(at(schemaOf('loadbalancer_create'), 'properties', 'listeners', 'anyOf', 0, 'items', 'properties'), {
    protocol_port: { description: 'Port that the listener listens on.' },
    default_pool: { anyOf: [{ properties: { members: {}, lb_algorithm: { description: String } } }] },
  })
  const parameters = at(document, 'paths', '/v2/lbaas/pools', 'get', 'parameters') as Json[]
  const names = parameters.map(parameter => parameter.name ?? String(parameter.$ref).split('/').at(-1))
  for (const name of [
    'lb_algorithm',
    'loadbalancer_id',
    'tags-any',
    'fields',
    'sort',
    'limit',
    'marker',
    'page_reverse',
  ]) {
    t.ok(names.includes(name), `pools can be listed by ${name}`)
  }
  t.notOk(names.includes('members'), 'nested lists cannot be filtered by')
})

/** A body with a schema's required attributes, made from the schema and the ids of existing objects alone. */
function exampleOf(schema: Json, known: Json): Json {
  const required = (schema.required ?? []) as string[]
  return Object.fromEntries(
    required.map(name => [name, known[name] ?? exampleValue(Object(at(schema, 'properties', name)))]),
  )
}

function exampleValue(schema: Json): JsonValue {
  if (Array.isArray(schema.enum)) return schema.enum[0] ?? null
  if (schema.type === 'integer') return Math.max(Number(schema.minimum ?? 1), 5)
  if (Array.isArray(schema.anyOf)) return '10.0.0.9'
  return schema.format === 'uuid' ? SUBNET : 'example'
}

t.test('the API accepts bodies made from the schemas and answers as the schemas say', async t => {
  const api = await startTestApi({ providers: ['noop_driver'] })
  t.teardown(api.stop)
  const make = async (path: string, singular: string, known: Json): Promise<Json> => {
    const body = { ...exampleOf(schemaOf(`${singular}_create`), known), ...known }
    const reply = await api.ask('POST', `/v2/lbaas/${path}`, { [singular]: body }, tokenOf('admin'))
    t.equal(reply.status, 201, `${path}: ${reply.text.slice(0, 300)}`)
    const made: Json = Object(reply.body[singular])
    const promised = Object.keys(Object(schemaOf(singular).properties))
    const required = (schemaOf(singular).required ?? []) as string[]
    t.same(
      Object.keys(made).filter(key => !promised.includes(key) && !['healthmonitor'].includes(key)),
      [],
      `${singular}: the schema describes every key of the answer`,
    )
    t.same(
      required.filter(key => made[key] === undefined),
      [],
      `${singular}: the answer has every required key of the schema`,
    )
    return made
  }
  const idOf = (made: Json) => String(made.id)
  const profile = await make('flavorprofiles', 'flavorprofile', { provider_name: 'noop_driver', flavor_data: '{}' })
  await make('flavors', 'flavor', { flavor_profile_id: idOf(profile) })
  const zoneProfile = await make('availabilityzoneprofiles', 'availability_zone_profile', {
    provider_name: 'noop_driver',
    availability_zone_data: '{}',
  })
  await make('availabilityzones', 'availability_zone', { availability_zone_profile_id: idOf(zoneProfile) })
  const balancer = await make('loadbalancers', 'loadbalancer', { vip_subnet_id: SUBNET, provider: 'noop_driver' })
  const listener = await make('listeners', 'listener', { loadbalancer_id: idOf(balancer) })
  const pool = await make('pools', 'pool', { loadbalancer_id: idOf(balancer) })
  await make(`pools/${idOf(pool)}/members`, 'member', {})
  await make('healthmonitors', 'healthmonitor', { pool_id: idOf(pool) })
  const policy = await make('l7policies', 'l7policy', { listener_id: idOf(listener) })
  await make(`l7policies/${idOf(policy)}/rules`, 'rule', { type: 'PATH', compare_type: 'STARTS_WITH', value: '/x' })
})

t.test('the document and the page need no token', async t => {
  const api: TestApi = await startTestApi()
  t.teardown(api.stop)
  const served = await api.ask('GET', '/openapi.json', undefined, null)
  t.equal(served.status, 200)
  t.match(served.headers.get('content-type'), 'application/json')
  t.strictSame(
    Object.keys(Object(served.body.paths)).sort(),
    [...Object.keys(Object(document.paths)), '/docs', '/openapi.json'].sort(),
  )
  for (const [path, item] of Object.entries(Object(document.paths) as Json)) {
    t.strictSame(at(served.body, 'paths', path), item, path)
  }
  t.strictSame(served.body.components, document.components)
  const page = await api.ask('GET', '/docs', undefined, null, { Accept: 'text/html' })
  t.equal(page.status, 200)
  t.match(page.headers.get('content-type'), 'text/html')
  t.match(
    page.headers.get('content-security-policy'),
    /default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+';/,
  )
  t.notMatch(page.text, /<link|\ssrc=|href="https?:/, 'the page loads nothing')
  const text = page.text.replaceAll('<wbr>', '')
  for (const route of routes) {
    t.ok(text.includes(`/v2${(route.split(' ')[1] ?? '').replace(/:(\w+)/g, '{$1}')}<`), `the page shows ${route}`)
  }
  t.match(page.text, /load-balancer_member/, 'the page shows who may call each route')
  t.equal((await api.ask('POST', '/openapi.json', {}, tokenOf('admin'))).status, 405)
})
