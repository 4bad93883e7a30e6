import t, { type Test } from 'tap'
import { startKeystone } from '../../support/services/keystone.js'
import { type CallOptions, type Reply, startIdentity } from '../../support/worlds/identity.js'

t.setTimeout(300_000)
const keystone = await startKeystone()
t.teardown(keystone.end)
const krater = await startIdentity()
t.teardown(krater.stop)

type Service = Pick<typeof krater, 'call' | 'tokenOf'>

/** One of the two services, with the IDs of what it made, by the names that operations give them. */
async function sideOf({ call, tokenOf }: Service) {
  const token = await tokenOf('admin', 'admin')
  const subject = { 'X-Subject-Token': token }
  const document = await call('GET /v3/auth/tokens', { token, headers: subject })
  const ids = new Map([
    ['me', document.text('token.user.id')],
    ['project', document.text('token.project.id')],
    ['token', token],
  ])
  const withIds = (text: string) => text.replace(/\{(\w+)\}/g, (_, name: string) => ids.get(name) ?? 'none')
  return {
    remember: (name: string, id: string) => ids.set(name, id),
    ask: (operation: string, body?: object, options: CallOptions = { token }): Promise<Reply> =>
      call(withIds(operation), {
        ...options,
        ...(body !== undefined && { body: withIds(JSON.stringify(body)) }),
      }),
  }
}

const sides = [await sideOf(keystone), await sideOf(krater)] as const

/** Values by their kind, times by their form (`0000-00-00T00:00:00.000000Z`), and lists by the forms of their items. */
function formOf(value: unknown): unknown {
  if (typeof value === 'string') return /^\d{4}-\d\d-\d\dT/.test(value) ? value.replaceAll(/\d/g, '0') : 'text'
  if (Array.isArray(value)) return [...new Set(value.map(item => JSON.stringify(formOf(item))))].sort()
  if (typeof value !== 'object' || value === null) return value === null ? null : typeof value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, inner]) => [name, formOf(inner)])
      // Newer than this Keystone: the description of a role in an inference.
      .filter(([name, form]) => name !== 'description' || form !== null),
  )
}

/** Asks both services and compares the status and the form of their answers. @param as name for the ID of what it made */
async function compare(t: Test, operation: string, body?: object, { as, options }: Compared = {}): Promise<void> {
  const forms: unknown[] = []
  for (const side of sides) {
    const reply = await side.ask(operation, body, options)
    forms.push({ status: reply.status, body: formOf(reply.body) })
    if (as !== undefined) side.remember(as, reply.text(`${Object.keys(Object(reply.body))[0]}.id`))
  }
  t.strictSame(forms[1], forms[0], `${operation} ${body === undefined ? '' : JSON.stringify(body)}`)
}

type Compared = { as?: string; options?: CallOptions }

t.test('objects have Keystone’s attributes, and times its form', async t => {
  await compare(t, 'POST /v3/regions', { region: { description: 'here' } }, { as: 'region' })
  await compare(t, 'POST /v3/domains', { domain: { name: 'elsewhere' } }, { as: 'domain' })
  await compare(t, 'POST /v3/projects', { project: { name: 'work', tags: ['a'] } }, { as: 'work' })
  await compare(t, 'POST /v3/groups', { group: { name: 'crew' } }, { as: 'crew' })
  const user = { name: 'alice', password: 'alice-pw', email: 'a@example.org', default_project_id: '{work}' }
  await compare(t, 'POST /v3/users', { user }, { as: 'alice' })
  await compare(t, 'POST /v3/roles', { role: { name: 'rower' } }, { as: 'rower' })
  await compare(t, 'PUT /v3/projects/{work}/users/{alice}/roles/{rower}')
  await compare(t, 'PUT /v3/groups/{crew}/users/{alice}')
  await compare(t, 'POST /v3/services', { service: { type: 'rowing', name: 'boats' } }, { as: 'service' })
  const endpoint = { service_id: '{service}', interface: 'public', url: 'http://boats.example', region_id: '{region}' }
  await compare(t, 'POST /v3/endpoints', { endpoint }, { as: 'endpoint' })
  const credential = { type: 'note', blob: 'text', user_id: '{alice}', project_id: '{work}' }
  await compare(t, 'POST /v3/credentials', { credential })
  const application_credential = {
    ...{ name: 'ci', description: 'builds', expires_at: '2038-01-02T03:04:05.678901Z', unrestricted: false },
    access_rules: [{ service: 'rowing', method: 'GET', path: '/boats' }],
  }
  const path = '/v3/users/{me}/application_credentials'
  await compare(t, `POST ${path}`, { application_credential }, { as: 'ci' })
  for (const side of sides) {
    const shown = await side.ask(`GET ${path}/{ci}`)
    t.equal(shown.text('application_credential.expires_at'), '2038-01-02T03:04:05.678901')
  }
  await compare(t, `GET ${path}/{ci}`)
  await compare(t, `GET ${path}`)
  for (const item of ['users/{alice}', 'projects/{work}', 'domains/{domain}', 'groups/{crew}', 'roles/{rower}']) {
    await compare(t, `GET /v3/${item}`)
  }
  for (const item of ['services/{service}', 'endpoints/{endpoint}', 'regions/{region}']) {
    await compare(t, `GET /v3/${item}`)
  }
  for (const list of ['users/{alice}/groups', 'users/{alice}/projects', 'groups/{crew}/users', 'roles/{rower}/implies'])
    await compare(t, `GET /v3/${list}`)
  for (const query of ['', '&include_names', '&effective'])
    await compare(t, `GET /v3/role_assignments?user.id={alice}${query}`)
  const scope = { project: { id: '{work}' } }
  const identity = { methods: ['password'], password: { user: { id: '{alice}', password: 'alice-pw' } } }
  await compare(t, 'POST /v3/auth/tokens?nocatalog', { auth: { identity, scope } }, { options: {} })
})

t.test('lists have Keystone’s filters, exact and inexact', async t => {
  for (const name of ['Anna', 'Hanna', 'banana']) {
    for (const side of sides) await side.ask('POST /v3/users', { user: { name, enabled: name !== 'banana' } })
  }
  const filters = {
    users: [
      'name=Anna',
      'name=anna',
      'name=Anna&name=Hanna',
      'name__contains=anna',
      'name__icontains=ANNA',
      'name__startswith=a',
      'name__istartswith=a',
      'name__endswith=ANA',
      'name__iendswith=ANA',
      'name__icontains=an&name__iendswith=a&enabled=true',
      'name__icontains=',
      'name__like=Anna',
      'name__icontains__x=Anna',
      'name__i=Anna',
      'domain_id__contains=faul',
      'enabled=false',
      'email__contains=nobody',
      'nonsense=1',
      'password_expires_at=gt:2016-11-06T15:32:17Z',
    ],
    projects: ['name__istartswith=WO', 'parent_id__contains=efaul', 'tags=a', 'tags__contains=b', 'not-tags=a'],
    domains: ['name__iendswith=WHERE', 'enabled=0'],
    groups: ['name__contains=re', 'name__contains=RE'],
    roles: ['name__startswith=row', 'name__endswith=row'],
    services: ['type__contains=row', 'name__icontains=BOATS'],
    regions: ['parent_region_id=x', 'nonsense__contains=x'],
    'users/{me}/application_credentials': ['name__icontains=C', 'name__contains=C'],
    'users/{alice}/projects': ['name__contains=wor', 'name=x', 'enabled=false', 'tags=nothing'],
    'users/{alice}/groups': ['name=crew', 'name=x'],
    'groups/{crew}/users': ['name__contains=ali', 'enabled=false'],
  }
  const own = new Set(['Anna', 'Hanna', 'banana', 'alice', 'work', 'elsewhere', 'crew', 'rower', 'boats', 'ci'])
  for (const [list, queries] of Object.entries(filters)) {
    for (const query of queries) {
      const found: string[][] = []
      for (const side of sides) {
        const items = (await side.ask(`GET /v3/${list}?${query}`)).list(list.split('/').at(-1)!)
        found.push(
          items
            .map(({ name }) => String(name))
            .filter(name => own.has(name))
            .sort(),
        )
      }
      t.strictSame(found[1], found[0], `${list}?${query}`)
    }
  }
})

t.test('a project is tagged', async t => {
  const tags = '/v3/projects/{work}/tags'
  await compare(t, `PUT ${tags}`, { tags: ['red', ' blue '] })
  await compare(t, `PUT ${tags}`, {})
  await compare(t, `PUT ${tags}`, { tags: ['a/b'] })
  await compare(t, `PUT ${tags}`, { tags: ['a', 'a'] })
  await compare(t, `PUT ${tags}`, { tags: Array.from({ length: 81 }, (_, n) => `tag ${n}`) })
  await compare(t, `GET ${tags}`)
  for (const operation of ['PUT', 'PUT', 'GET', 'HEAD', 'DELETE', 'DELETE', 'GET', 'HEAD'])
    await compare(t, `${operation} ${tags}/green`)
  await compare(t, `PUT ${tags}/a,b`)
  for (const side of sides) t.strictSame((await side.ask(`GET ${tags}`)).list('tags').sort(), ['blue', 'red'])
  await compare(t, `DELETE ${tags}`)
  await compare(t, 'GET /v3/projects/nowhere/tags')
  await compare(t, 'PUT /v3/projects/nowhere/tags/green')
  const project = { name: 'fixed', tags: ['a', 'b'], options: { immutable: true } }
  await compare(t, 'POST /v3/projects', { project }, { as: 'fixed' })
  await compare(t, 'PUT /v3/projects/{fixed}/tags', { tags: [] })
  await compare(t, 'PUT /v3/projects/{fixed}/tags/green')
  const queries = ['tags=a', 'tags=a,b', 'tags=a,c', 'tags-any=a,c', 'not-tags=a,b', 'not-tags-any=b,c', 'tags=A']
  for (const query of queries) {
    const found: string[][] = []
    for (const side of sides) {
      const { list } = await side.ask(`GET /v3/projects?name__contains=i&${query}`)
      found.push(
        list('projects')
          .map(({ name }) => String(name))
          .filter(name => name === 'fixed' || name === 'admin'),
      )
    }
    t.strictSame(found[1], found[0], query)
  }
})

t.test('a role of a domain is used there only, and by what it implies', async t => {
  const role = { name: 'rower', domain_id: '{domain}' }
  await compare(t, 'POST /v3/roles', { role }, { as: 'local' })
  await compare(t, 'POST /v3/roles', { role })
  await compare(t, 'POST /v3/roles', { role: { name: 'cox', domain_id: 'default' } }, { as: 'cox' })
  await compare(t, 'GET /v3/roles/{local}')
  await compare(t, 'PATCH /v3/roles/{local}', { role: { domain_id: 'default' } })
  await compare(t, 'PATCH /v3/roles/{local}', { role: { name: 'sculler' } })
  for (const [query, names] of [
    ['domain_id={domain}', ['sculler']],
    ['domain_id=default', ['cox']],
    ['domain_id=nowhere', []],
    ['name=rower', ['rower']],
    ['name=cox', []],
    ['name=cox&domain_id=default', ['cox']],
  ] as const) {
    for (const side of sides) {
      const found = (await side.ask(`GET /v3/roles?${query}`)).list('roles').map(({ name }) => name)
      t.strictSame(found, names, query)
    }
  }
  await compare(t, 'PUT /v3/roles/{rower}/implies/{cox}')
  await compare(t, 'PUT /v3/roles/{cox}/implies/{rower}')
  await compare(t, 'GET /v3/roles/{cox}/implies')
  await compare(t, 'PUT /v3/projects/{work}/users/{alice}/roles/{local}')
  await compare(t, 'PUT /v3/system/users/{alice}/roles/{cox}')
  await compare(t, 'DELETE /v3/projects/{work}/users/{alice}/roles/{rower}')
  for (const actor of ['users/{alice}', 'groups/{crew}']) {
    for (const target of ['projects/{work}', 'domains/default']) {
      const roles = `/v3/${target}/${actor}/roles`
      await compare(t, `PUT ${roles}/{cox}`)
      await compare(t, `HEAD ${roles}/{cox}`)
      await compare(t, `GET ${roles}`)
      await compare(t, `HEAD ${roles}/{rower}`)
      for (const query of ['', '&include_names', '&effective', '&role.id={cox}', '&role.id={rower}&effective']) {
        const filter = actor.startsWith('users') ? 'user.id={alice}' : 'group.id={crew}'
        await compare(t, `GET /v3/role_assignments?${filter}${query}`)
      }
    }
  }
  const identity = { methods: ['password'], password: { user: { id: '{alice}', password: 'alice-pw' } } }
  for (const scope of [{ project: { id: '{work}' } }, { domain: { id: 'default' } }]) {
    await compare(t, 'POST /v3/auth/tokens?nocatalog', { auth: { identity, scope } }, { options: {} })
    for (const side of sides) {
      const reply = await side.ask('POST /v3/auth/tokens', { auth: { identity, scope } }, {})
      t.strictSame(
        reply.list('token.roles').map(({ name }) => name),
        ['rower'],
      )
    }
  }
  await compare(t, 'DELETE /v3/roles/{cox}')
  await compare(
    t,
    'POST /v3/auth/tokens',
    { auth: { identity, scope: { domain: { id: 'default' } } } },
    { options: {} },
  )
})

t.test('nothing is limited', async t => {
  for (const path of ['limits', 'limits/model', 'registered_limits', 'limits/none', 'registered_limits/none'])
    await compare(t, `GET /v3/${path}`)
  for (const path of ['limits/none', 'registered_limits/none']) await compare(t, `DELETE /v3/${path}`)
})

t.test('a password is changed with the original one, without a token', async t => {
  const change = (user: object) => ({ user })
  const path = 'POST /v3/users/{alice}/password'
  const none = { options: {} }
  await compare(t, path, change({ password: 'fresh', original_password: 'wrong' }), none)
  await compare(t, path, change({ password: 'fresh' }), none)
  await compare(t, path, change({ password: null, original_password: 'alice-pw' }), none)
  await compare(t, 'POST /v3/users/nobody/password', change({ password: 'x', original_password: 'y' }), none)
  await compare(t, path, change({ password: 'fresh', original_password: 'alice-pw' }), {
    options: { token: 'nonsense' },
  })
  await compare(t, path, change({ password: 'other', original_password: 'alice-pw' }), none)
  for (const side of sides) await side.ask('PATCH /v3/users/{alice}', { user: { enabled: false } })
  await compare(t, path, change({ password: 'other', original_password: 'fresh' }), none)
})
