import fc from 'fast-check'
import t from 'tap'
import { NOT_OFFERED } from '../../../controller/identity/not-offered.js'
import { administratorOf } from '../../support/clients/identity-administrator.js'
import { anyText } from '../../support/inputs/any-text.js'
import { startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)
const { projects } = identity
const { as, statusOf, idOf } = await administratorOf(identity)

t.test('unknown methods are 405, unknown paths 404, malformed ones 400', async t => {
  const wrong = await as('PUT /v3/users', {})
  t.equal(wrong.status, 405)
  t.match(wrong.headers.get('Allow'), 'GET')
  t.match(wrong.body, { error: { code: 405, message: String } })
  t.equal(await statusOf('GET /v3/nonsense'), 404)
  t.equal(await statusOf('GET /v3/users?name=%00'), 400)
  t.equal(await statusOf('GET /v3/users/%E0%A4%A'), 400)
})

t.test('what this service does not offer says so, and limits name the quotas to use', async t => {
  for (const [name, paths] of Object.entries(NOT_OFFERED)) {
    for (const path of paths) {
      for (const below of ['', '/more', '/more/still']) {
        const operation = `POST /v3/${path.replace(':id', 'x')}${below}`
        const message = `This identity service does not offer ${name}.`
        t.match(await as(operation, {}), { status: 404, body: { error: { code: 404, message } } }, operation)
      }
    }
  }
  for (const path of ['limits', 'registered_limits']) {
    const { status, body } = await as(`POST /v3/${path}`, { [path]: [] })
    t.match({ status, body }, { status: 501, body: { error: { code: 501, message: 'Set quotas at the services' } } })
  }
})

t.test('a refusal names the attribute and what is accepted', async t => {
  const login = (auth: object) => ({ auth: { identity: { methods: ['token'], token: { id: 'x' } }, ...auth } })
  const ci = 'POST /v3/users/{me}/application_credentials'
  const refusals: [operation: string, body: object | undefined, message: string][] = [
    ['POST /v3/users', {}, "Invalid input for field 'user': is required."],
    ['POST /v3/users', { user: [] }, "Invalid input for field 'user': must be an object."],
    ['POST /v3/users', { user: {} }, "Invalid input for field 'user/name': is required."],
    ['POST /v3/users', { user: { name: 5 } }, "Invalid input for field 'user/name': must be a string."],
    ['POST /v3/users', { user: { name: ' ' } }, "Invalid input for field 'user/name': must not be blank."],
    [
      'POST /v3/users',
      { user: { name: 'x'.repeat(256), enabled: 'yes' } },
      "Invalid input for field 'user/name': must have at most 255 characters. Invalid input for field 'user/enabled': must be true or false.",
    ],
    [
      'POST /v3/users',
      { user: { name: 'x', password: '' } },
      "Invalid input for field 'user/password': must not be empty.",
    ],
    [
      'POST /v3/projects',
      { project: { name: 'x', tags: 'a' } },
      "Invalid input for field 'project/tags': must be a list.",
    ],
    [
      'POST /v3/projects',
      { project: { name: 'x', is_domain: true } },
      "Invalid input for field 'project/is_domain': must be false: create domains under /v3/domains.",
    ],
    [
      'POST /v3/endpoints',
      { endpoint: { interface: 'outer', service_id: 'x', url: 'http://x' } },
      "Invalid input for field 'endpoint/interface': must be one of: public, internal, admin.",
    ],
    [
      ci,
      { application_credential: { name: 'x', expires_at: 'soon' } },
      "Invalid input for field 'application_credential/expires_at': must be an ISO 8601 time.",
    ],
    [
      ci,
      { application_credential: { name: 'x', expires_at: '2001-01-01T00:00:00' } },
      "Invalid input for field 'application_credential/expires_at': must be in the future.",
    ],
    [
      ci,
      { application_credential: { name: 'x', roles: [{}] } },
      "Invalid input for field 'application_credential/roles/0': needs an id or a name.",
    ],
    [
      'POST /v3/auth/tokens',
      login({ scope: { project: { name: 'demo' } } }),
      "Invalid input for field 'auth/scope/project': needs an id, or a name with a domain.",
    ],
    [
      'POST /v3/auth/tokens',
      login({ scope: 'everything' }),
      'Invalid input for field \'auth/scope\': must be "unscoped", or name one project or domain',
    ],
    [
      'POST /v3/auth/tokens',
      { auth: { identity: { methods: ['totp'] } } },
      "Invalid input for field 'auth/identity/methods/0': must be one of: password, token, application_credential.",
    ],
  ]
  const me = await idOf('users', 'admin')
  for (const [operation, body, message] of refusals) {
    const reply = await as(operation.replace('{me}', me), body)
    t.equal(reply.status, 400, operation)
    t.equal(reply.text('error.message').slice(0, message.length), message)
  }
})

t.test('no JSON body causes a server error', async t => {
  const user = (await as('POST /v3/users', { user: { name: 'fuzzed' } })).text('user.id')
  const me = (await as('GET /v3/users?name=admin')).list('users')[0]!.id
  const region = (await as('POST /v3/regions', { region: {} })).text('region.id')
  const service = (await as('POST /v3/services', { service: { type: 'x' } })).text('service.id')
  const targets: readonly (readonly [string, string])[] = [
    ['POST /v3/users', 'user'],
    [`PATCH /v3/users/${user}`, 'user'],
    [`POST /v3/users/${me}/password`, 'user'],
    ['POST /v3/projects', 'project'],
    [`PATCH /v3/projects/${projects.demo}`, 'project'],
    ['POST /v3/domains', 'domain'],
    ['POST /v3/roles', 'role'],
    ['POST /v3/groups', 'group'],
    ['POST /v3/services', 'service'],
    [`PATCH /v3/services/${service}`, 'service'],
    ['POST /v3/endpoints', 'endpoint'],
    ['POST /v3/regions', 'region'],
    [`PATCH /v3/regions/${region}`, 'region'],
    ['PUT /v3/regions/new', 'region'],
    ['POST /v3/credentials', 'credential'],
    [`POST /v3/users/${me}/application_credentials`, 'application_credential'],
    ['POST /v3/auth/tokens', 'auth'],
  ]
  // Known keys with arbitrary values reach deeper code than arbitrary objects.
  const keys = fc.constantFrom(
    'name',
    'domain_id',
    'parent_id',
    'enabled',
    'options',
    'tags',
    'description',
    'default_project_id',
    'type',
    'url',
    'interface',
    'service_id',
    'region',
    'region_id',
    'parent_region_id',
    'blob',
    'user_id',
    'project_id',
    'roles',
    'expires_at',
    'access_rules',
    'identity',
    'methods',
    'scope',
    'id',
    'extra',
    'email',
    '__proto__',
    'constructor',
    'toString',
  )
  const value = fc.oneof(
    fc.jsonValue({ maxDepth: 3 }),
    anyText(),
    fc.constantFrom(
      '\0',
      '\ud800',
      '',
      'default',
      'RegionOne',
      'x'.repeat(70_000),
      '9999999-01-01',
      '275760-09-13T00:00:00',
      1e308,
      -1,
      null,
      [],
      {},
    ),
  )
  const inner = fc.oneof(
    { weight: 3, arbitrary: fc.dictionary(keys, value, { maxKeys: 6 }) },
    { weight: 1, arbitrary: value },
  )
  await fc.assert(
    fc.asyncProperty(fc.constantFrom(...targets), inner, async ([operation, wrapper], content) => {
      const reply = await as(operation, { [wrapper]: content })
      if (reply.status >= 500)
        throw new Error(`${operation} ${JSON.stringify(content)} → ${reply.status} ${JSON.stringify(reply.body)}`)
      if (reply.status >= 400) t.match(reply.body, { error: { code: reply.status, message: /./ } })
      if (reply.status === 400)
        t.notMatch(reply.text('error.message'), /Invalid input:|Invalid option|received|Too (big|small)/)
    }),
    { numRuns: 400, endOnFailure: false },
  )
  t.equal((await identity.login('admin', 'admin')).status, 201)
})
