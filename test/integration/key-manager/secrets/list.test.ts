import t from 'tap'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import { at, type Json } from '../../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'

const api = await startTestKeyManager()
const { ask, database } = api
t.teardown(api.stop)

type Row = {
  name?: string | null
  secret_type?: string
  algorithm?: string
  mode?: string
  bit_length?: number
  created_at?: string
  updated_at?: string
  expiration?: string | null
  project_id?: string
  acl_users?: string[]
  acl_project_access?: boolean
  deleted_at?: string
}

let count = 0
/** Inserts secrets, each created a second after the previous one. */
async function insert(rows: readonly Row[]): Promise<void> {
  for (const row of rows) {
    const time = new Date(Date.UTC(2026, 0, 1, 0, 0, count++)).toISOString()
    const id = `00000000-0000-4000-8000-${String(count).padStart(12, '0')}`
    const common = { id, project_id: OWN, creator_id: 'somebody', created_at: time, updated_at: time }
    await database('secret').insert({ ...common, ...row })
  }
}

const list = async (query: string, token = tokenOf('member'), version = '1.0') =>
  ask('GET', `/v1/secrets?${query}`, undefined, {
    token,
    headers: { 'OpenStack-API-Version': `key-manager ${version}` },
  })
const namesIn = (body: Json): unknown[] => Object(body).secrets.map((secret: Json) => secret.name)
const named = async (query: string, token?: string) => {
  const reply = await list(`${query}&limit=100`, token)
  if (reply.status !== 200) throw new Error(`${query}: ${reply.status} ${reply.text}`)
  const names = namesIn(reply.body)
  t.equal(reply.body.total, names.length, `the total of ${query}`)
  return names
}

t.test('the list filters by name, algorithm, mode, bit length and type', async t => {
  await insert([
    { name: 'alpha', algorithm: 'aes', mode: 'cbc', bit_length: 256, secret_type: 'symmetric' },
    { name: 'alpha_2', algorithm: 'aes', mode: 'gcm', bit_length: 128, secret_type: 'symmetric' },
    { name: 'alphaX2', algorithm: 'rsa', bit_length: 2048, secret_type: 'private' },
    { name: 'a\\b%+ c', secret_type: 'passphrase' },
    { name: null },
    { name: 'foreign', project_id: FOREIGN, algorithm: 'aes' },
    { name: 'expired', expiration: '2026-01-02T00:00:00Z', algorithm: 'aes' },
    { name: 'deleted', deleted_at: '2026-01-02T00:00:00Z', algorithm: 'aes' },
    { name: 'private', acl_project_access: false, algorithm: 'des' },
  ])
  const all = ['alpha', 'alpha_2', 'alphaX2', 'a\\b%+ c', null, 'private']
  for (const [query, expected] of [
    ['', all],
    ['name=alpha', ['alpha']],
    ['name=ALPHA', []],
    ['name=alpha%25', ['alpha', 'alpha_2', 'alphaX2']],
    ['name=alpha_2', ['alpha_2', 'alphaX2']],
    ['name=%25_2', ['alpha_2', 'alphaX2']],
    [`name=${encodeURIComponent('a\\b%+ c')}`, ['a\\b%+ c']],
    ['name=a%25%2B+c', ['a\\b%+ c']],
    ['name=%5C', []],
    ['name=a%5C%25', ['a\\b%+ c']],
    ['name=%FF%FE', []],
    ['name=', all],
    ['alg=aes', ['alpha', 'alpha_2']],
    ['alg=%25s%25', ['alpha', 'alpha_2', 'alphaX2', 'private']],
    ['mode=g%25', ['alpha_2']],
    ['bits=256', ['alpha']],
    ['bits=0256', ['alpha']],
    ['bits=0', all],
    ['bits=many', all],
    ['bits=-1', []],
    ['bits=99999999999999999999', []],
    ['secret_type=private', ['alphaX2']],
    ['secret_type=nothing', []],
    ['alg=aes&bits=128&mode=gcm&secret_type=symmetric&name=alpha%25', ['alpha_2']],
    ['alg=aes&mode=none', []],
    ['unknown=x&status=y', all],
  ] as const) {
    t.strictSame(await named(query), expected, query)
  }
  t.equal((await list('name=%00')).status, 400)
  t.strictSame(await named('', tokenOf('member', FOREIGN)), ['foreign'], 'each project lists its own secrets')
})

t.test('the list filters by creation, update and expiration time', async t => {
  await database('secret').delete()
  await insert([
    { name: 'a', created_at: '2026-03-01T00:00:00.000001Z', updated_at: '2026-05-01T00:00:00Z' },
    { name: 'b', created_at: '2026-03-01T00:00:00.000002Z', expiration: '2990-01-01T00:00:00Z' },
    { name: 'c', created_at: '2026-04-01T00:00:00Z', expiration: '2991-01-01T00:00:00Z' },
  ])
  for (const [query, expected] of [
    ['created=2026-03-01T00:00:00.000001', ['a']],
    ['created=gt:2026-03-01T00:00:00.000001', ['b', 'c']],
    ['created=gte:2026-03-01T00:00:00.000001', ['a', 'b', 'c']],
    ['created=lt:2026-03-01T00:00:00.000002', ['a']],
    ['created=lte:2026-03-01T00:00:00.000002', ['a', 'b']],
    ['created=gt:2026-03-01T00:00:00.000001,lt:2026-04-01', ['b']],
    ['created=gt:2026-03-15,lt:2026-03-10', []],
    ['created=2026-04-01T02:00:00%2B02:00', ['c']],
    ['created=2026-04-01T00:00:00Z', ['c']],
    ['created=2026-04-01,gt:2026-01-01', ['c']],
    ['updated=2026-05-01T00:00:00', ['a']],
    ['expiration=gte:2990-01-01T00:00:00', ['b', 'c']],
    ['expiration=gt:2020-01-01,lte:2990-06-01', ['b']],
    ['expiration=lt:9999-12-31T23:59:59.999999999', ['b', 'c']],
    ['created=gt:0001-01-01', ['a', 'b', 'c']],
    ['created=', ['a', 'b', 'c']],
  ] as const) {
    t.strictSame(await named(query), expected, query)
  }
  for (const wrong of [
    ...[
      'yesterday',
      'gt:',
      'gt',
      'gt:gt:2026-01-01',
      'eq:2026-01-01',
      'gt:2026-01-01,',
      ',',
      '2026-13-01',
      '2026-02-29',
    ],
    ...['gt:2026-01-01,gte:2026-01-01', 'lt:2026-01-01,lt:2026-01-02', '2026-01-01,2026-01-01'],
    ...['2026-01-01,gte:2026-01-01', 'lte:2026-01-01,2026-01-01'],
    ...['0000-01-01', '0001-01-01T00:00:00%2B10:00', '9999-12-31T23:59:59-01:00', '20260-01-01', '2026-01-01T24:00:00'],
    ...['%00', '2026-01-01%00', '1e400', "'"],
  ]) {
    for (const name of ['created', 'updated', 'expiration']) {
      const { status, body } = await list(`${name}=${wrong}`)
      t.match({ status, body }, { status: 400, body: { code: 400, description: /./ } }, `${name}=${wrong}`)
    }
  }
})

t.test('expiring_in_days lists the secrets that expire within that many days', async t => {
  await database('secret').delete()
  const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString()
  await insert([
    { name: 'never' },
    { name: 'tomorrow', expiration: inDays(0.9) },
    { name: 'week', expiration: inDays(6.9) },
    { name: 'later', expiration: '9999-01-01T00:00:00Z' },
    { name: 'past', expiration: inDays(-1) },
  ])
  t.strictSame(await named('expiring_in_days=0'), [])
  t.strictSame(await named('expiring_in_days=1'), ['tomorrow'])
  t.strictSame(await named('expiring_in_days=7'), ['tomorrow', 'week'])
  t.strictSame(
    await named(`expiring_in_days=7&expiration=gt:${inDays(2)}`),
    ['week'],
    'it combines with another filter',
  )
  t.strictSame(await named('expiring_in_days=99999999999999999999999'), ['tomorrow', 'week', 'later'])
  for (const wrong of ['-1', '1.5', 'soon', '1e3', '0x10']) {
    t.equal((await list(`expiring_in_days=${wrong}`)).status, 400, wrong)
  }
})

t.test('sort orders the list by up to ten keys', async t => {
  await database('secret').delete()
  await insert([
    { name: 'b', bit_length: 2, algorithm: 'y' },
    { name: 'a', bit_length: 2, algorithm: 'x' },
    { name: 'c', bit_length: 1, algorithm: 'x' },
  ])
  for (const [sort, expected] of [
    ['', ['b', 'a', 'c']],
    ['name', ['a', 'b', 'c']],
    ['name:desc', ['c', 'b', 'a']],
    ['bit_length:desc,name:asc', ['a', 'b', 'c']],
    ['algorithm,bit_length', ['c', 'a', 'b']],
    ['created:desc', ['c', 'a', 'b']],
    ['updated', ['b', 'a', 'c']],
    ['status:desc', ['b', 'a', 'c']],
    ['secret_type,expiration,mode', ['b', 'a', 'c']],
  ] as const) {
    t.strictSame(await named(`sort=${sort}`), expected, sort)
  }
  for (const wrong of ['size', 'name:up', 'name,name:desc', 'name:asc:desc', 'name,', 'constructor', '%00', 'id']) {
    t.equal((await list(`sort=${wrong}`)).status, 400, wrong)
  }
  t.match(await list(`sort=${'name,'.repeat(1000)}`), { status: 400, body: { description: /at most 10 keys/ } })
})

t.test('acl_only lists the secrets whose ACL names the caller', async t => {
  await database('secret').delete()
  await insert([
    { name: 'mine', acl_users: ['user-member', 'x'] },
    { name: 'theirs', project_id: FOREIGN, acl_users: ['user-member'] },
    { name: 'not for me', project_id: FOREIGN, acl_users: ['user-other'] },
    { name: 'own' },
    { name: 'gone', project_id: FOREIGN, acl_users: ['user-member'], deleted_at: '2026-01-02T00:00:00Z' },
  ])
  t.strictSame(await named('acl_only=true'), ['mine', 'theirs'])
  t.strictSame(await named('acl_only=TRUE&name=t%25'), ['theirs'])
  for (const other of ['false', 'yes', '']) t.strictSame(await named(`acl_only=${other}`), ['mine', 'own'], other)
})

t.test('the list pages, and its links lead through all secrets', async t => {
  await database('secret').delete()
  await insert(Array.from({ length: 25 }, (_, index) => ({ name: `s${String(index).padStart(2, '0')}` })))
  const page = async (query: string) => {
    const { body, status } = await list(query)
    t.equal(status, 200, query)
    const { next, previous, total } = body
    const cut = (href: unknown) => (href === undefined ? undefined : String(href).replace(`${api.url}/v1/secrets?`, ''))
    const names = namesIn(body)
    return [names.length === 0 ? '' : `${names[0]}-${names.at(-1)}`, total, cut(previous), cut(next)]
  }
  for (const [query, ...expected] of [
    ['', 's00-s09', 25, undefined, 'limit=10&offset=10'],
    ['limit=10&offset=10', 's10-s19', 25, 'limit=10&offset=0', 'limit=10&offset=20'],
    ['limit=10&offset=20', 's20-s24', 25, 'limit=10&offset=10', undefined],
    ['limit=10&offset=15', 's15-s24', 25, 'limit=10&offset=5', undefined],
    ['limit=10&offset=5', 's05-s14', 25, 'limit=10&offset=0', 'limit=10&offset=15'],
    ['offset=25', '', 25, undefined, undefined],
    ['offset=99999999999999999999999', '', 25, undefined, undefined],
    ['offset=-3', 's00-s09', 25, undefined, 'limit=10&offset=10'],
    ['limit=0', 's00-s00', 25, undefined, 'limit=1&offset=1'],
    ['limit=-5', 's00-s00', 25, undefined, 'limit=1&offset=1'],
    ['limit=100000', 's00-s24', 25, undefined, undefined],
    ['limit=99999999999999999999999', 's00-s24', 25, undefined, undefined],
    ['limit=ten&offset=1.5', 's00-s09', 25, undefined, 'limit=10&offset=10'],
    ['limit=&offset=', 's00-s09', 25, undefined, 'limit=10&offset=10'],
    ['limit=2&name=s1%25&sort=name:desc', 's19-s18', 10, undefined, 'limit=2&offset=2&name=s1%25&sort=name%3Adesc'],
    ['name=nothing', '', 0, undefined, undefined],
  ] as const) {
    t.strictSame(await page(query), expected, query)
  }
  const walked: unknown[] = []
  let next: unknown = `${api.url}/v1/secrets?limit=4&name=s%25&x=%C3%BC+%26`
  for (let pages = 0; next !== undefined && pages < 10; pages++) {
    const { body } = await ask('GET', String(next).slice(api.url.length))
    walked.push(...namesIn(body))
    next = body.next
  }
  t.equal(walked.length, 25, 'the links lead through all secrets')
  t.equal(new Set(walked).size, 25)
})

t.test('consumers are shown from microversion 1.1', async t => {
  const id = String(at((await list('limit=1')).body, 'secrets', 0, 'secret_ref')).slice(-36)
  const consumer = { service: 's', resource_type: 't', resource_id: 'r' }
  await ask('POST', `/v1/secrets/${id}/consumers`, consumer)
  t.notOk('consumers' in Object(at((await list('limit=1')).body, 'secrets', 0)))
  const newer = (await list('limit=2', undefined, '1.1')).body
  t.match(newer, { secrets: [{ consumers: [consumer] }, { consumers: [] }] })
})

t.test('a page costs the same however many secrets exist', async t => {
  await database.raw(
    `INSERT INTO secret (id, project_id, creator_id, name)
     SELECT gen_random_uuid(), ?, 'x', 'n' || n FROM generate_series(1, 20000) n`,
    [OWN],
  )
  await database.raw('VACUUM ANALYZE secret')
  const statements: { sql: string; options?: { values: readonly unknown[] } }[] = []
  const note = (statement: (typeof statements)[number]) => statements.push(statement)
  database.on('query', note)
  await list('limit=100')
  database.removeListener('query', note)
  const [{ sql = '', options } = {}] = statements
  const explain = (how: string) => database.raw(sql).options({ text: `EXPLAIN ${how} ${sql}`, values: options?.values })
  const { rows } = await explain('')
  const plan = rows.map((row: Record<string, string>) => row['QUERY PLAN']).join('\n')
  t.match(plan, /Index Only Scan using secret_of_project/, plan)
  t.notMatch(plan, /Sort[^\n]*\n[^\n]*\n[^\n]*secret_of_project/, 'the index provides the order of the page')
  const { rows: buffers } = await explain('(ANALYZE, BUFFERS, FORMAT JSON)')
  const read = Number(buffers[0]['QUERY PLAN'][0].Plan['Shared Hit Blocks'])
  t.ok(read < 1000, `${read} blocks for a page of 100 of 20,000`)
})
