import { createPrivateKey, createPublicKey } from 'node:crypto'
import t from 'tap'
import { connect } from '../../../../controller/database/connection.js'
import { CryptoUnavailable } from '../../../../controller/key-manager/crypto/backend.js'
import { eraseProject } from '../../../../controller/key-manager/erase-project.js'
import type { OrderExecutor, OrderOutcome } from '../../../../controller/key-manager/orders/outcome.js'
import { OWN, tokenOf } from '../../../support/clients/callers.js'
import type { Json } from '../../../support/clients/json-answers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { eventually } from '../../../support/eventually.js'
import { startDatabaseProxy } from '../../../support/faults/database-proxy.js'
import { EXECUTORS, orderHelpers, pathOf, startTestOrderWorker } from '../../../support/worlds/order-worker.js'
import { createGate } from '../../../support/worlds/worker-scene.js'

const keyManager = await startTestKeyManager()
const { ask, database, databaseUrl, keyring, stop } = keyManager
const { order, show, ended } = orderHelpers(keyManager)
t.teardown(stop)

const worker = await startTestOrderWorker(keyManager)
t.teardown(worker.stop)

const AES = { name: 'k', algorithm: 'aes', bit_length: 256, mode: 'cbc' }
const rowOf = (id: string) => database('secret_order').where({ id }).first()
const secretsMade = async () => Number((await database('secret').count())[0]?.count)
const payloadOf = async (reference: unknown) => (await ask('GET', `${pathOf(reference)}/payload`)).bytes

/** Secrets of a container by their names in it. */
const partsOf = async (reference: unknown): Promise<Map<string, { path: string; payload: Buffer }>> => {
  const rows = await database('container_secret')
    .where({ container_id: String(reference).slice(-36) })
    .orderBy('position')
  const parts = await Promise.all(
    rows.map(async ({ name, secret_id: id }) => {
      const path = `/v1/secrets/${id}`
      return [name, { path, payload: (await ask('GET', `${path}/payload`)).bytes }] as const
    }),
  )
  return new Map(parts)
}

/** Runs `body` with a worker that executes key orders with `key`; the shared worker is stopped. */
const withExecutor = async (key: OrderExecutor, body: () => Promise<void>) => {
  await worker.stop()
  const own = await startTestOrderWorker(keyManager, { executors: { ...EXECUTORS, key }, owner: 'own' })
  try {
    await body()
  } finally {
    await own.stop()
  }
}

t.test('a key order creates one secret with the ordered metadata', async t => {
  const meta = { ...AES, expiration: '2130-01-01T00:00:00', payload_content_type: 'application/octet-stream' }
  const record = await ended(await order('key', meta))
  t.match(record, { status: 'ACTIVE', sub_status: 'Unknown', sub_status_message: 'Unknown' })
  t.notOk('container_ref' in record || 'error_reason' in record)
  const secret = (await ask('GET', pathOf(record.secret_ref))).body
  t.match(secret, {
    ...{ name: 'k', algorithm: 'aes', bit_length: 256, mode: 'cbc', expiration: '2130-01-01T00:00:00' },
    ...{ secret_type: 'symmetric', creator_id: 'user-member', status: 'ACTIVE' },
    content_types: { default: 'application/octet-stream' },
  })
  t.equal((await payloadOf(record.secret_ref)).length, 32)
  const row = await rowOf(String(record.order_ref).slice(-36))
  t.match(row, { lease_owner: null, lease_until: null, retry_at: null })
  const untyped = await ended(await order('key', { ...AES, payload_content_type: '' }))
  const { body } = await ask('GET', pathOf(untyped.secret_ref))
  t.match([untyped.meta, body], [{ payload_content_type: '' }, { content_types: secret.content_types }])
})

t.test('every symmetric key has the ordered length and is unique', async t => {
  const kinds: [string, number, string?][] = [
    ...([128, 192, 256] as const).map((bits): [string, number] => ['aes', bits]),
    ...([256, 384, 512] as const).map((bits): [string, number, string] => ['AES', bits, 'XTS']),
    ...([64, 256, 1024] as const).map((bits): [string, number] => ['HmacSHA256', bits]),
    ...[
      ['hmacsha384', 384] as [string, number],
      ['hmacsha512', 512] as [string, number],
      ['des', 64] as [string, number],
    ],
    ['3DES', 192],
  ]
  const seen = new Set<string>()
  for (const [algorithm, bit_length, mode] of kinds) {
    const record = await ended(await order('key', { algorithm, bit_length, ...(mode === undefined ? {} : { mode }) }))
    const payload = await payloadOf(record.secret_ref)
    t.equal(payload.length * 8, bit_length, `${algorithm} ${bit_length}`)
    t.match((await ask('GET', pathOf(record.secret_ref))).body, { algorithm }, 'the algorithm keeps its spelling')
    seen.add(payload.toString('hex'))
  }
  t.equal(seen.size, kinds.length)
})

t.test('an order that cannot be executed ends in ERROR with a code, a reason and an audit record', async t => {
  const orders: [string, Json, string][] = [
    ['key', { algorithm: 'rot13', bit_length: 8 }, '400'],
    ['key', { algorithm: 'rsa', bit_length: 2048 }, '400'],
    ['asymmetric', { algorithm: 'aes', bit_length: 256 }, '400'],
    ['key', { algorithm: 'aes', bit_length: 512 }, '500'],
    ['key', { algorithm: 'aes', bit_length: 128, mode: 'xts' }, '500'],
    ['key', { algorithm: 'hmacsha512', bit_length: 1032 }, '500'],
    ['asymmetric', { algorithm: 'rsa', bit_length: 1024, passphrase: 'gone' }, '500'],
    ['asymmetric', { algorithm: 'dsa', bit_length: 1024 }, '500'],
    ['asymmetric', { algorithm: 'ec', bit_length: 255 }, '500'],
    ['key', { algorithm: 'x'.repeat(255), bit_length: 8 }, '400'],
  ]
  for (const [type, meta, code] of orders) {
    const id = await order(type, meta)
    const record = await ended(id)
    t.match(record, { status: 'ERROR', error_status_code: code, sub_status: 'Unknown' }, JSON.stringify(meta))
    t.ok(String(record.error_reason).length <= 255)
    t.notOk('secret_ref' in record || 'container_ref' in record)
    t.match(await rowOf(id), { sealed_passphrase: null, project_key_id: null, lease_owner: null })
    const [failed] = await database('audit_record').where({ target_id: id, action: 'order.fail' })
    t.match(failed, { outcome: 'failure', user_id: 'user-member', detail: { status: code } })
  }
})

t.test('an RSA order creates a container with the key pair, the private key encrypted with the passphrase', async t => {
  const id = await order('asymmetric', {
    name: 'pair',
    algorithm: 'RSA',
    bit_length: 2048,
    passphrase: 'correct horse',
  })
  const record = await ended(id)
  t.match(record, { status: 'ACTIVE', meta: { algorithm: 'RSA' } })
  t.notOk('secret_ref' in record)
  const container = await database('container')
    .where({ id: String(record.container_ref).slice(-36) })
    .first()
  t.match(container, { type: 'rsa', name: 'pair', creator_id: 'user-member', project_id: OWN })
  const parts = await partsOf(record.container_ref)
  t.same([...parts.keys()], ['private_key', 'public_key', 'private_key_passphrase'])
  const pem = parts.get('private_key')!.payload.toString()
  t.match(pem, /^-----BEGIN ENCRYPTED PRIVATE KEY-----/)
  const privateKey = createPrivateKey({ key: pem, passphrase: 'correct horse' })
  t.throws(() => createPrivateKey({ key: pem, passphrase: 'wrong' }))
  t.equal(privateKey.asymmetricKeyDetails?.modulusLength, 2048)
  t.equal(
    createPublicKey(privateKey).export({ type: 'spki', format: 'pem' }),
    parts.get('public_key')!.payload.toString(),
  )
  t.equal(parts.get('private_key_passphrase')!.payload.toString(), 'correct horse')
  for (const [name, type] of [
    ['private_key', 'private'],
    ['public_key', 'public'],
    ['private_key_passphrase', 'passphrase'],
  ] as const) {
    const secret = (await ask('GET', parts.get(name)!.path)).body
    t.match(secret, { name: 'pair', secret_type: type, algorithm: 'RSA', bit_length: 2048 })
    t.match(secret, { content_types: { default: 'application/octet-stream' } })
  }
  t.match(await rowOf(id), { sealed_passphrase: null, project_key_id: null }, 'the passphrase is erased')
  const audits = await database('audit_record')
    .where({ action: 'secret.generate' })
    .whereRaw(`detail->>'order' = ?`, [id])
  t.equal(audits.length, 3)
})

t.test('EC, DSA and large RSA orders create matching key pairs', async t => {
  const kinds: [Json, Record<string, unknown>][] = [
    [{ algorithm: 'ec', bit_length: 256 }, { namedCurve: 'prime256v1' }],
    [{ algorithm: 'EC', bit_length: 384, curve: 'secp384r1' }, { namedCurve: 'secp384r1' }],
    [{ algorithm: 'ec', bit_length: 521, pass_phrase: 'p' }, { namedCurve: 'secp521r1' }],
    [
      { algorithm: 'dsa', bit_length: 2048 },
      { modulusLength: 2048, divisorLength: 256 },
    ],
    [{ algorithm: 'rsa', bit_length: 4096 }, { modulusLength: 4096 }],
  ]
  for (const [meta, details] of kinds) {
    const record = await ended(await order('asymmetric', meta))
    const container = await database('container')
      .where({ id: String(record.container_ref).slice(-36) })
      .first()
    t.equal(container.type, meta.algorithm === 'rsa' ? 'rsa' : 'generic', 'a container type that clients know')
    const parts = await partsOf(record.container_ref)
    t.equal(parts.size, 'pass_phrase' in meta ? 3 : 2)
    const key = createPrivateKey({ key: parts.get('private_key')!.payload.toString(), passphrase: 'p' })
    t.match(key.asymmetricKeyDetails, details)
    t.equal(createPublicKey(key).export({ type: 'spki', format: 'pem' }), parts.get('public_key')!.payload.toString())
  }
})

t.test('two workers share many orders and execute each once', async t => {
  const second = await startTestOrderWorker(keyManager)
  const before = await secretsMade()
  const ids = await Promise.all(Array.from({ length: 40 }, () => order('key', AES)))
  const records = await Promise.all(ids.map(id => ended(id)))
  await second.stop()
  t.equal(new Set(records.map(({ secret_ref }) => secret_ref)).size, 40)
  t.equal((await secretsMade()) - before, 40)
  t.same(await database('secret_order').whereIn('id', ids).whereNot({ fence: 1 }), [])
})

t.test('a symmetric key order does not wait behind prime searches', async t => {
  const slow = await Promise.all(
    Array.from({ length: 3 }, () => order('asymmetric', { algorithm: 'rsa', bit_length: 4096 })),
  )
  const quick = await order('key', AES)
  await ended(quick)
  const open = await database('secret_order').whereIn('id', slow).whereIn('status', ['PENDING', 'PROCESSING'])
  t.ok(open.length > 0, `${open.length} prime searches still run`)
  await Promise.all(slow.map(id => ask('DELETE', `/v1/orders/${id}`)))
})

t.test('a notification wakes an idle worker before its next sweep', async t => {
  const times: number[] = []
  for (let round = 0; round < 10; round++) {
    const asked = performance.now()
    const id = await order('key', AES)
    await eventually('the order is ACTIVE', async () => (await rowOf(id)).status === 'ACTIVE')
    times.push(performance.now() - asked)
  }
  t.comment(`milliseconds: ${times.map(Math.round).join(' ')}`)
  t.ok(Math.min(...times) < 2_000, 'much sooner than the next sweep')
})

t.test('a result is stored under the new project key when the key changes during the order', async t => {
  await ended(await order('key', AES))
  await database('project_key').where({ project_id: OWN, active: true }).update({ active: false })
  const record = await ended(await order('key', AES))
  t.match(record, { status: 'ACTIVE' })
  const secret = await database('secret')
    .where({ id: String(record.secret_ref).slice(-36) })
    .first()
  t.match(await database('project_key').where({ id: secret.project_key_id }).first(), { active: true })
  t.equal((await payloadOf(record.secret_ref)).length, 32)
  const pair = await ended(await order('asymmetric', { algorithm: 'ec', bit_length: 256, passphrase: 'p' }))
  t.match(pair, { status: 'ACTIVE' }, 'an order with a passphrase succeeds too')
})

t.test('an order in progress is PROCESSING in the database and PENDING in the API', async t => {
  const gate = createGate()
  const waiting: OrderExecutor = async (...given) => {
    await gate.pass()
    return EXECUTORS.key(...given)
  }
  await withExecutor(waiting, async () => {
    const id = await order('key', AES)
    await gate.arrived
    t.match(await rowOf(id), { status: 'PROCESSING', lease_owner: 'own' })
    t.match(await show(id), { status: 'PENDING' })
    gate.open()
    t.match(await ended(id), { status: 'ACTIVE' })
  })
})

t.test('deleting an order in progress leaves nothing behind', async t => {
  for (const remove of [
    async (id: string) => void (await ask('DELETE', `/v1/orders/${id}`)),
    async () => void (await eraseProject(database, OWN)),
  ]) {
    const gate = createGate()
    const before = await secretsMade()
    await withExecutor(
      async (...given) => {
        await gate.pass()
        return EXECUTORS.key(...given)
      },
      async () => {
        const id = await order('key', AES)
        await gate.arrived
        await remove(id)
        gate.open()
        const other = await order('key', AES)
        await ended(other)
        t.match(await rowOf(id), { secret_id: null })
        t.equal(await secretsMade(), before + 1, 'only the other order made a secret')
      },
    )
  }
})

t.test('a stopped worker releases its orders at once', async t => {
  const gate = createGate()
  await worker.stop()
  const busy = await startTestOrderWorker(keyManager, {
    executors: {
      ...EXECUTORS,
      key: async () => {
        await gate.pass()
        return { kind: 'later', seconds: 1, subStatus: '', subStatusMessage: '' }
      },
    },
  })
  const id = await order('key', AES)
  await gate.arrived
  await busy.stop()
  t.match(await rowOf(id), { status: 'PENDING', lease_owner: null, secret_id: null })
  const heir = await startTestOrderWorker(keyManager)
  t.match(await ended(id), { status: 'ACTIVE' })
  await heir.stop()
})

t.test('a worker leaves another worker’s order alone until its lease expires', async t => {
  const id = await order('key', AES)
  await database('secret_order')
    .where({ id })
    .update({
      status: 'PROCESSING',
      lease_owner: 'dead',
      fence: 1,
      lease_until: database.raw(`now() + interval '300 ms'`),
    })
  const heir = await startTestOrderWorker(keyManager, { config: { concurrency: 2, sweep_interval: 30 } })
  t.match(await ended(id), { status: 'ACTIVE' })
  t.match(await rowOf(id), { fence: 2 })
  await heir.stop()
})

t.test('unexpected errors are not shown to the client', async t => {
  await withExecutor(
    () => Promise.reject(new Error('postgres://user:password@host')),
    async () => {
      const id = await order('key', AES)
      const record = await ended(id)
      t.match(record, { status: 'ERROR', error_status_code: '500', error_reason: /fault in the service/ })
      t.notMatch(JSON.stringify(record), 'password')
    },
  )
})

t.test('an order waits as PENDING while the crypto back end is unavailable', async t => {
  let away = true
  const flaky = {
    ...keyring,
    seal: (...given: Parameters<typeof keyring.seal>) =>
      away ? Promise.reject(new CryptoUnavailable('the token is unplugged')) : keyring.seal(...given),
  }
  const own = await startTestOrderWorker(keyManager, { keyring: flaky })
  const id = await order('key', AES)
  const waiting = await eventually('the order is postponed', async () => {
    const record = await show(id)
    return 'sub_status' in record && record
  })
  t.match(waiting, { status: 'PENDING', sub_status: 'storage_unavailable', sub_status_message: /retried/ })
  t.match(await rowOf(id), { retries: 1, lease_owner: null })
  away = false
  t.match(await ended(id), { status: 'ACTIVE', sub_status: 'Unknown' })
  await own.stop()
})

t.test('an executor may postpone an order', async t => {
  let calls = 0
  const later: OrderOutcome = { kind: 'later', seconds: 0.2, subStatus: 'x'.repeat(50), subStatusMessage: 'waits' }
  await withExecutor(
    async (given, signal) => (calls++ === 0 ? later : EXECUTORS.key(given, signal)),
    async () => {
      const id = await order('key', AES)
      await eventually('the order is postponed', async () => (await show(id)).sub_status === 'x'.repeat(36))
      t.match(await ended(id), { status: 'ACTIVE' })
      t.equal(calls, 2)
      t.match(await rowOf(id), { retries: 1 })
    },
  )
})

t.test('an executor’s own rows are stored together with the secrets or not at all', async t => {
  const standing = (await ask('POST', '/v1/secrets', { payload: 'x', payload_content_type: 'text/plain' })).body
  const reference = { role: 'intermediates', secretId: String(standing.secret_ref).slice(-36) }
  let alsoStore = 'works'
  const executor: OrderExecutor = async (given, signal) => {
    const outcome = await EXECUTORS.key(given, signal)
    if (outcome.kind !== 'made') return outcome
    return {
      ...outcome,
      secrets: outcome.secrets.map(secret => ({ ...secret, role: 'certificate' })),
      container: { name: 'c', type: 'certificate' },
      references: [reference],
      subStatus: 'cert_generated',
      alsoStore: async trx => {
        await trx('project').insert({ id: `also ${alsoStore}` })
        if (alsoStore === 'fails') throw new Error('full')
      },
    }
  }
  await withExecutor(executor, async () => {
    const made = await ended(await order('key', AES))
    t.match(made, { status: 'ACTIVE', sub_status: 'cert_generated' })
    t.same([...(await partsOf(made.container_ref)).keys()], ['certificate', 'intermediates'])
    t.equal((await database('project').where({ id: 'also works' })).length, 1)

    alsoStore = 'fails'
    const before = await secretsMade()
    t.match(await ended(await order('key', AES)), { status: 'ERROR', error_status_code: '500' })
    t.equal(await secretsMade(), before)
    t.equal((await database('project').where({ id: 'also fails' })).length, 0)

    alsoStore = 'never'
    await database('secret').where({ id: reference.secretId }).update({ deleted_at: database.fn.now() })
    t.match(await ended(await order('key', AES)), {
      status: 'ERROR',
      error_status_code: '400',
      error_reason: /deleted/,
    })
    t.equal(await secretsMade(), before)
    t.equal((await database('project').where({ id: 'also never' })).length, 0)
  })
})

t.test('a key made while the database is unavailable is stored once it is back', async t => {
  const proxy = await startDatabaseProxy(databaseUrl)
  const through = connect({ url: proxy.url, applicationName: 'order worker', poolSize: 4 })
  const gate = createGate()
  let calls = 0
  const own = await startTestOrderWorker(keyManager, {
    database: through,
    databaseUrl: proxy.url,
    executors: {
      ...EXECUTORS,
      key: async (...given) => {
        calls++
        await gate.pass()
        return EXECUTORS.key(...given)
      },
    },
  })
  const id = await order('key', AES)
  await gate.arrived
  await proxy.disconnect()
  gate.open()
  await new Promise(resolve => setTimeout(resolve, 400))
  t.match(await rowOf(id), { status: 'PROCESSING' })
  await proxy.reconnect()
  t.match(await ended(id), { status: 'ACTIVE' })
  t.equal(calls, 1, 'the key is made only once')
  t.match(await rowOf(id), { fence: 1 })
  await own.stop()
  await through.destroy()
  await proxy.stop()
})

t.test('a worker runs three statements per order', async t => {
  const statements: string[] = []
  const counted = connect({ url: databaseUrl, applicationName: 'counted', poolSize: 4 })
  counted.on('query', ({ sql }: { sql: string }) => statements.push(sql))
  const own = await startTestOrderWorker(keyManager, { database: counted })
  await ended(await order('key', AES, tokenOf('member')))
  await eventually('the worker is idle', async () => statements.length >= 5)
  statements.length = 0
  await ended(await order('key', AES))
  // The query for the next due time belongs to no order.
  const ofOrder = statements.filter(sql => !sql.includes('extract(epoch'))
  t.equal(ofOrder.length, 3, ofOrder.join('\n'))
  await own.stop()
  await counted.destroy()
})
