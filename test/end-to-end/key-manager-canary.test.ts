import { execFile, spawn } from 'node:child_process'
import { createDecipheriv, createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { connect } from '../../controller/database/connection.js'
import { type Canary, searchFiles, searchFor } from '../support/canary.js'
import type { Json } from '../support/clients/json-answers.js'
import { NOOP_DRIVERS, startKrater, until } from '../support/worlds/krater.js'

/**
 * Sends secrets to a whole Krater at its most verbose log level, on every path including those that fail. Then
 * searches logs, answers, processes and all that PostgreSQL keeps for them, in every encoding.
 */
t.setTimeout(1_100_000)

const run = promisify(execFile)
const canaries: Canary[] = []
const refusals: { what: string; text: string }[] = []
const processes = new Set<string>()

/** Remembers a secret. */
function canary<Secret extends string | Buffer>(name: string, secret: Secret): Secret {
  canaries.push({ name, bytes: Buffer.from(secret) })
  return secret
}

/** A text that JSON and URLs encode differently. */
const word = (name: string): string => canary(name, `${randomBytes(15).toString('base64')} "ü/%+\\`)

/** Remembers a private key by its number, which is the same in every format. */
function canaryKey(name: string, pem: string | Buffer, passphrase?: string): void {
  const key = createPrivateKey({ key: pem, ...(passphrase !== undefined && { passphrase }) })
  const { d } = key.export({ format: 'jwk' })
  if (d !== undefined) canary(name, Buffer.from(d, 'base64url'))
}

const krater = await startKrater(t, { ...NOOP_DRIVERS, KRATER_LOG_LEVEL: 'trace' })
const member = await krater.api('krater')
const administrator = await krater.api('krater-admin')
const url = member.urlOf('key-manager')
const root = /^https?:\/\/[^/]+/.exec(url)?.[0] ?? url
const socket = encodeURIComponent(join(krater.directory, 'postgres/socket'))
const administratorUrl = `postgres://postgres@/postgres?host=${socket}`

/** Records the arguments and environment of every process of this machine. */
function lookAtProcesses(): void {
  for (const pid of readdirSync('/proc').filter(name => /^\d+$/.test(name) && Number(name) !== process.pid)) {
    for (const file of ['cmdline', 'environ']) {
      try {
        processes.add(readFileSync(`/proc/${pid}/${file}`, 'latin1'))
      } catch {
        // The process exited.
      }
    }
  }
}

type Options = { type?: string; headers?: Record<string, string>; token?: string }

async function ask(method: string, path: string, body?: unknown, { type, headers, token }: Options = {}) {
  const isRaw = typeof body === 'string' || Buffer.isBuffer(body)
  const answer = await fetch(path.startsWith('http') ? path : `${root}${path}`, {
    method,
    headers: { 'X-Auth-Token': token ?? member.token, 'Content-Type': type ?? 'application/json', ...headers },
    ...(body === undefined ? {} : { body: isRaw ? body : JSON.stringify(body) }),
    signal: AbortSignal.timeout(30_000),
  })
  const bytes = Buffer.from(await answer.arrayBuffer())
  const text = bytes.toString()
  if (answer.status >= 400) refusals.push({ what: `${method} ${path}`, text: `${text} ${[...answer.headers].join()}` })
  const isJson = (answer.headers.get('content-type') ?? '').includes('json')
  return { status: answer.status, bytes, text, body: (isJson && text !== '' ? JSON.parse(text) : {}) as Json }
}

async function stored(body: object): Promise<string> {
  const reply = await ask('POST', '/v1/secrets', body)
  t.equal(reply.status, 201, reply.text)
  return String(reply.body.secret_ref)
}

const payload = async (reference: string): Promise<Buffer> => (await ask('GET', `${reference}/payload`)).bytes

async function ordered(type: string, meta: object, status = 'ACTIVE'): Promise<Json> {
  const reply = await ask('POST', '/v1/orders', { type, meta })
  t.equal(reply.status, 202, reply.text)
  let order: Json = {}
  await until(`the order is ${status}`, async () => {
    lookAtProcesses()
    order = (await ask('GET', String(reply.body.order_ref))).body
    return order.status === 'ACTIVE' || order.status === 'ERROR'
  })
  t.equal(order.status, status, JSON.stringify(order))
  return order
}

const references = async (container: unknown): Promise<{ name: string; secret_ref: string }[]> =>
  (await ask('GET', String(container))).body.secret_refs as { name: string; secret_ref: string }[]

const text = (name: string) => ({ payload: word(name), payload_content_type: 'text/plain' })
const TYPES = ['text/plain', 'application/octet-stream', 'application/pkcs8', 'application/pkix-cert']

/** A container with an RSA key protected by a passphrase. */
async function container(passphrase: string, sealedWith = passphrase): Promise<string> {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const pem = String(privateKey.export({ format: 'pem', type: 'pkcs8', cipher: 'aes-256-cbc', passphrase: sealedWith }))
  canaryKey('the key in a container', String(privateKey.export({ format: 'pem', type: 'pkcs8' })))
  const base64 = (value: string | Buffer) => ({
    payload: Buffer.from(value).toString('base64'),
    payload_content_type: 'application/octet-stream',
    payload_content_encoding: 'base64',
  })
  const parts: [string, object][] = [
    ['private_key', { ...base64(pem), secret_type: 'private' }],
    ['public_key', base64(String(publicKey.export({ format: 'pem', type: 'spki' })))],
    ['private_key_passphrase', { payload: passphrase, payload_content_type: 'text/plain', secret_type: 'passphrase' }],
  ]
  const secret_refs: object[] = []
  for (const [name, body] of parts) secret_refs.push({ name, secret_ref: await stored(body) })
  return String((await ask('POST', '/v1/containers', { type: 'rsa', name: 'c', secret_refs })).body.container_ref)
}

t.test('secrets are stored in every way', async t => {
  await stored(text('a text'))
  const binary = canary('bytes in base64', randomBytes(40)).toString('base64')
  const octets = { payload_content_type: 'application/octet-stream', payload_content_encoding: 'base64' }
  await stored({ ...octets, payload: binary })
  for (const type of TYPES) {
    for (const encoding of type === 'text/plain' ? [''] : ['', 'base64']) {
      const bytes = canary(`${type} ${encoding}`, Buffer.from(randomBytes(30).toString('base64')))
      const reference = await stored({ name: 'later' })
      const sent = encoding === '' ? bytes : Buffer.from(bytes.toString('base64'))
      const headers: Record<string, string> = encoding === '' ? {} : { 'Content-Encoding': encoding }
      t.equal((await ask('PUT', reference, sent, { type, headers })).status, 204)
      t.ok((await payload(reference)).equals(bytes))
    }
  }
  const key = String(
    generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'pem', type: 'pkcs8' }),
  )
  canaryKey('a key as PEM', key)
  await stored({ payload: key, payload_content_type: 'application/pkcs8', secret_type: 'private' })
  const pkcs12 = canary('PKCS#12', Buffer.concat([Buffer.from('3082', 'hex'), randomBytes(300)]))
  await stored({ ...octets, payload: pkcs12.toString('base64') })
})

t.test('orders generate keys and certificates', async () => {
  const aes = await ordered('key', { name: 'k', algorithm: 'aes', bit_length: 256, mode: 'cbc' })
  canary('a generated key', await payload(String(aes.secret_ref)))
  for (const [algorithm, bits] of [
    ['ec', 256],
    ['rsa', 2048],
  ] as const) {
    const passphrase = word(`the passphrase of an order of ${algorithm}`)
    const pair = await ordered('asymmetric', { name: 'p', algorithm, bit_length: bits, passphrase })
    for (const { name, secret_ref } of await references(pair.container_ref)) {
      if (name === 'private_key') canaryKey(`a generated ${algorithm} key`, await payload(secret_ref), passphrase)
    }
  }
  const certificate = await ordered('certificate', { subject_dn: 'CN=made.example', algorithm: 'ec' })
  for (const { name, secret_ref } of await references(certificate.container_ref)) {
    if (name === 'private_key') canaryKey('the key of a certificate', await payload(secret_ref))
  }
  const stored_key = { request_type: 'stored-key', subject_dn: 'CN=kept.example' }
  await ordered('certificate', { ...stored_key, container_ref: await container(word('a stored passphrase')) })
  const other = await container(word('a wrong passphrase'), word('the right passphrase'))
  await ordered('certificate', { ...stored_key, container_ref: other }, 'ERROR')
})

t.test('secrets are sent in requests that fail', async t => {
  const whole = () => text('a payload that is refused')
  const empty = await stored({ name: 'without' })
  const full = await stored(whole())
  const put = (body: string, type: string, headers = {}, to = empty) => ask('PUT', to, body, { type, headers })
  const order = (type: string, meta: object) => ask('POST', '/v1/orders', { type, meta })
  const pair = { name: 'x', algorithm: 'rsa', bit_length: 2048 }
  const replies = [
    await ask('POST', '/v1/secrets', `{"payload": ${JSON.stringify(word('broken JSON'))}, `),
    await ask('POST', '/v1/secrets', word('no JSON')),
    await ask('POST', '/v1/secrets', JSON.stringify(whole()), { type: 'text/plain' }),
    await ask('POST', '/v1/secrets', { ...whole(), payload: { inside: word('an object') } }),
    await ask('POST', '/v1/secrets', { ...whole(), payload: [word('a list')] }),
    await ask('POST', '/v1/secrets', { ...whole(), bit_length: 'long' }),
    await ask('POST', '/v1/secrets', { ...whole(), secret_type: 'none' }),
    await ask('POST', '/v1/secrets', { ...whole(), expiration: 'yesterday' }),
    await ask('POST', '/v1/secrets', { ...whole(), payload_content_encoding: 'base64' }),
    await ask('POST', '/v1/secrets', { ...whole(), payload_content_type: 'image/png' }),
    await ask('POST', '/v1/secrets', { payload: word('no type') }),
    await ask('POST', '/v1/secrets', { ...whole(), payload: `${word('a NUL')}\0` }),
    await ask('POST', '/v1/secrets', { ...whole(), payload: word('too long').repeat(1500) }),
    await ask('POST', '/v1/secrets', {
      ...{ payload: word('no base64'), payload_content_type: 'application/octet-stream' },
      payload_content_encoding: 'base64',
    }),
    await ask('POST', '/v1/secrets', whole(), { token: word('no token').replace(/[^ -~]/g, '') }),
    await put(word('an unknown type'), 'image/png'),
    await put(word('no base64 in a PUT'), 'application/octet-stream', { 'Content-Encoding': 'base64' }),
    await put(word('another encoding'), 'application/octet-stream', { 'Content-Encoding': 'gzip' }),
    await put(word('too long in a PUT').repeat(1500), 'text/plain'),
    await put(word('a second payload'), 'text/plain', {}, full),
    await put(word('nobody there'), 'text/plain', {}, `${root}/v1/secrets/00000000-0000-4000-8000-000000000000`),
    await order('asymmetric', { ...pair, passphrase: [word('a list for a passphrase')] }),
    await order('asymmetric', { ...pair, passphrase: word('a passphrase that is too long').repeat(60) }),
    await order('asymmetric', { ...pair, bit_length: 'x', passphrase: word('beside an invalid field') }),
    await order('key', { name: 'x', algorithm: 'aes', bit_length: 256, payload: word('the payload of an order') }),
    await order('certificate', { subject_dn: 'CN=x', payload: word('the payload of a certificate') }),
    await order('certificate', { subject_dn: 'CN=x', passphrase: word('a passphrase for a certificate') }),
    await order('certificate', { subject_dn: 'CN=x', private_key: word('a key for a certificate') }),
    await order('none', { passphrase: word('an order of no kind') }),
    await ask('PUT', `${full}/acl`, { read: { users: word('an ACL') } }),
  ]
  for (const [at, { status }] of replies.entries()) t.ok(status >= 400 && status < 500, `${at}: ${status}`)
  // Ignored: a symmetric key order takes no passphrase.
  await ordered('key', { name: 'x', algorithm: 'aes', bit_length: 256, passphrase: word('passed over') })

  const quota = `${root}/v1/project-quotas/${member.projectId}`
  const { token } = administrator
  t.equal((await ask('PUT', quota, { project_quotas: { secrets: 0, orders: 0 } }, { token })).status, 204)
  t.equal((await ask('POST', '/v1/secrets', whole())).status, 403)
  t.equal((await order('asymmetric', { ...pair, passphrase: word('over the quota') })).status, 403)
  t.equal((await ask('DELETE', quota, undefined, { token })).status, 204)
})

t.test('a database that refuses a store, and one that dies during it', async t => {
  const database = connect({ url: administratorUrl, applicationName: 'test', poolSize: 1 })
  for (const [table, column] of [
    ['secret', 'creator_id'],
    ['secret_order', 'creator_id'],
  ] as const) {
    await database.raw(`ALTER TABLE key_manager.${table} ADD CONSTRAINT refusing CHECK (${column} = '') NOT VALID`)
  }
  t.equal((await ask('POST', '/v1/secrets', text('refused by the database'))).status, 500)
  const meta = { name: 'x', algorithm: 'ec', bit_length: 256, passphrase: word('an order that the database refuses') }
  t.equal((await ask('POST', '/v1/orders', { type: 'asymmetric', meta })).status, 500)
  for (const table of ['secret', 'secret_order']) {
    await database.raw(`ALTER TABLE key_manager.${table} DROP CONSTRAINT refusing`)
  }
  await database
    .transaction(async trx => {
      await trx.raw('LOCK TABLE key_manager.secret, key_manager.secret_order IN ACCESS EXCLUSIVE MODE')
      const storing = [
        ask('POST', '/v1/secrets', text('in the middle')),
        // From another project, because requests of one project run one after another.
        ask(
          'POST',
          '/v1/orders',
          { type: 'asymmetric', meta: { ...meta, passphrase: word('an order in the middle') } },
          { token: administrator.token },
        ),
      ]
      await until('both stores wait', async () => {
        await trx.raw('SELECT pg_stat_clear_snapshot()')
        const { rows } = await trx.raw(
          `SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'INSERT INTO secret'`,
        )
        return rows.length === 2
      })
      lookAtProcesses()
      const { rows } = await trx.raw('SELECT string_agg(query, chr(10)) AS queries FROM pg_stat_activity')
      processes.add(rows[0].queries)
      krater.kill('postgres')
      for (const reply of await Promise.all(storing)) t.equal(reply.status, 503)
      throw new Error('roll back')
    })
    .catch(() => undefined)
  await database.destroy()
  await until('the API answers again', async () => (await ask('GET', '/v1/secrets?limit=1')).status === 200)
  await stored(text('after it'))
})

t.test('the service’s own keys become canaries', async t => {
  const [master = ''] = ['key-manager-master', 'key-manager-audit', 'identity-credentials', 'amphora-master'].map(
    name => {
      const hex = readFileSync(join(krater.directory, 'keys', name), 'utf8').trim()
      canary(name, Buffer.from(hex, 'hex'))
      return hex
    },
  )
  const database = connect({ url: administratorUrl, applicationName: 'test', poolSize: 1 })
  const open = (key: Buffer, sealed: Buffer, context: string) => {
    const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, 12)).setAAD(Buffer.from(context))
    decipher.setAuthTag(sealed.subarray(-16))
    return Buffer.concat([decipher.update(sealed.subarray(12, -16)), decipher.final()])
  }
  const keys: { id: string; wrapped: Buffer }[] = await database('key_manager.project_key')
  t.ok(keys.length >= 2)
  const unwrapped = new Map(
    keys.map(({ id, wrapped }) => [
      id,
      canary('a project key', open(Buffer.from(master, 'hex'), wrapped, 'project key')),
    ]),
  )
  const authorities = await database('key_manager.certificate_authority').whereNotNull('sealed_key')
  t.ok(authorities.length >= 1)
  for (const { id, sealed_key, project_key_id } of authorities) {
    const der = open(unwrapped.get(project_key_id) ?? Buffer.alloc(0), sealed_key, `certificate authority ${id}`)
    const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
    t.ok(createPublicKey(key))
    canaryKey('the key of a CA', String(key.export({ format: 'pem', type: 'pkcs8' })))
  }
  await database.destroy()
})

/** What to search besides files: a dump of the databases. */
async function dump(): Promise<Buffer> {
  const { stdout } = await run('pg_dump', ['-d', administratorUrl], {
    ...{ timeout: 60_000, maxBuffer: 256 * 1024 * 1024, encoding: 'buffer' as const },
  })
  return stdout
}

const stateFiles = () => readdirSync(krater.directory).filter(name => name !== 'keys')

t.test('no canary is found in files, dumps, processes or answers', async t => {
  t.ok(canaries.length > 60, `${canaries.length} canaries`)
  const search = searchFor(canaries)
  const database = connect({ url: administratorUrl, applicationName: 'test', poolSize: 1 })
  await database.raw('CHECKPOINT')
  await database.destroy()
  lookAtProcesses()
  t.same(
    stateFiles().flatMap(name => searchFiles(join(krater.directory, name), search)),
    [],
    'files and logs',
  )
  t.same(search(await dump()), [], 'a dump of the database')
  t.same(
    [...processes].flatMap(seen => search(Buffer.from(seen, 'latin1'))),
    [],
    'arguments and environments of processes',
  )
  t.same(
    refusals.flatMap(({ what, text }) => search(Buffer.from(text)).map(way => `${what}: ${way}`)),
    [],
    'answers',
  )
})

t.test('the search finds planted canaries', async t => {
  const bytes = Buffer.from(`${randomBytes(15).toString('hex')} "ü\\`)
  const search = searchFor([{ name: 'planted', bytes }])
  const log = join(krater.directory, 'log/planted.log')
  writeFileSync(log, JSON.stringify({ err: { bindings: [bytes], message: bytes.toString() } }))
  t.same(searchFiles(log, search), [`${log}: planted, a list of numbers`, `${log}: planted, JSON`])
  const database = connect({ url: administratorUrl, applicationName: 'test', poolSize: 1 })
  await database.raw('CREATE TABLE planted (text text, bytes bytea)')
  await database('planted').insert({ text: bytes.toString('base64'), bytes })
  t.same(search(await dump()).sort(), ['planted, base64 at 0', 'planted, base64url at 0', 'planted, hexadecimal'])
  await database.raw('CHECKPOINT')
  await database.destroy()
  const found = searchFiles(join(krater.directory, 'postgres/data'), search)
  t.ok(
    found.some(place => place.includes('/base/')),
    'it finds them in a table',
  )
  t.ok(
    found.some(place => place.includes('/pg_wal/')),
    'it finds them in the WAL',
  )
  const child = spawn('sleep', ['20', '0', '0'], { env: { PLANTED: bytes.toString() }, argv0: bytes.toString('hex') })
  lookAtProcesses()
  child.kill('SIGKILL')
  const ways = new Set([...processes].flatMap(seen => search(Buffer.from(seen, 'latin1'))))
  t.same([...ways].sort(), ['planted, hexadecimal', 'planted, plain'])
})
