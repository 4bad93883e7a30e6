import { randomBytes } from 'node:crypto'
import t from 'tap'
import { createKeyring } from '../../../../controller/key-manager/crypto/keyring.js'
import { requireBackends, requireMasterKeys } from '../../../../controller/key-manager/crypto/master-key.js'
import { createMasterKey, createPkcs11Crypto } from '../../../../controller/key-manager/crypto/pkcs11/backend.js'
import { createTokenClient } from '../../../../controller/key-manager/crypto/pkcs11/token-client.js'
import { createSimpleCrypto } from '../../../../controller/key-manager/crypto/simple/backend.js'
import {
  preferredBackend,
  StoreStillPreferred,
  syncSecretStores,
} from '../../../../controller/key-manager/secret-stores/sync.js'
import { CANARY } from '../../../support/canary.js'
import { FOREIGN, tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { createSoftToken } from '../../../support/services/softhsm.js'

const token = await createSoftToken(t)
const client = createTokenClient({
  ...{ settings: token.settings, callMilliseconds: 10_000, queueLimit: 100, program: token.program },
})
await createMasterKey(client, 'stores')
const STORES = [
  { name: 'Software', backend: 'simple_crypto', globalDefault: true },
  { name: 'Token', backend: 'p11_crypto', globalDefault: false },
] as const
const backends = [
  createSimpleCrypto({ origin: 'the test', remedy: '', keys: [randomBytes(32)], reread: null }),
  createPkcs11Crypto(client, 'stores', 'the token'),
]
const manager = await startTestKeyManager(
  { crypto: { enable_multiple_secret_stores: true } },
  undefined,
  async database => {
    for (const backend of backends) await requireMasterKeys(database, backend)
    await syncSecretStores(database, STORES)
    return createKeyring(database, backends, projectId => preferredBackend(database, projectId))
  },
)
t.teardown(manager.stop)
const { ask, store, database } = manager
const admin = tokenOf('admin')
const call = (method: string, path: string, as = tokenOf('reader')) =>
  ask(method, `/v1/secret-stores${path}`, undefined, { token: as })

type Store = { name: string; secret_store_ref: string; global_default: boolean; crypto_plugin: string }
const stores = (await call('GET', '')).body.secret_stores as Store[]
const idOf = (name: string): string => stores.find(found => found.name === name)?.secret_store_ref.slice(-36) ?? ''
const backendOf = async (secretId: string): Promise<string> =>
  (
    await database('secret as s')
      .join('project_key as k', 'k.id', 's.project_key_id')
      .where('s.id', secretId)
      .first('k.backend')
  ).backend

t.test('the API shows the secret stores as configured', async t => {
  t.match(stores, [
    {
      ...{ status: 'ACTIVE', name: 'Software', global_default: true, crypto_plugin: 'simple_crypto' },
      ...{ secret_store_plugin: 'store_crypto', created: /^\d{4}-/, updated: /^\d{4}-/ },
      secret_store_ref: new RegExp(`^${manager.url}/v1/secret-stores/[0-9a-f-]{36}$`),
    },
    { name: 'Token', global_default: false, crypto_plugin: 'p11_crypto' },
  ])
  t.match((await call('GET', '/global-default')).body, { name: 'Software' })
  t.match((await call('GET', `/${idOf('Token')}`)).body, { name: 'Token' })
  t.equal((await call('GET', '/preferred')).status, 404)
  t.equal((await call('GET', '/nothing')).status, 404)
  t.equal((await call('GET', `/${idOf('Token').replace(/^.{8}/, '00000000')}`)).status, 404)
  t.equal((await call('GET', `/${idOf('Token')}/preferred`)).status, 405)
})

t.test('new secrets go to the project’s preferred store; existing ones stay readable in theirs', async t => {
  const first = await store()
  t.equal(await backendOf(first), 'simple_crypto')
  t.equal((await call('POST', `/${idOf('Token')}/preferred`)).status, 403, 'only administrators choose the store')
  t.equal((await call('POST', `/${idOf('Token')}/preferred`, admin)).status, 204)
  t.match((await call('GET', '/preferred')).body, { name: 'Token' })
  const second = await store()
  t.equal(await backendOf(second), 'p11_crypto')
  t.equal(
    await backendOf(await store(undefined, tokenOf('member', FOREIGN))),
    'simple_crypto',
    'other projects are not affected',
  )
  for (const id of [first, second]) t.equal((await ask('GET', `/v1/secrets/${id}/payload`)).text, CANARY)
  t.equal((await call('DELETE', `/${idOf('Software')}/preferred`, admin)).status, 404)
  t.equal((await call('POST', `/${idOf('Software')}/preferred`, admin)).status, 204, 'another store can be preferred')
  t.equal(await backendOf(await store()), 'simple_crypto')
  t.equal((await call('DELETE', `/${idOf('Software')}/preferred`, admin)).status, 204)
  t.equal((await call('DELETE', `/${idOf('Software')}/preferred`, admin)).status, 404)
  t.equal(await backendOf(await store()), 'simple_crypto')
})

t.test('a start updates the stores to the configuration and refuses to drop a preferred one', async t => {
  await syncSecretStores(database, STORES)
  t.same((await call('GET', '')).body.secret_stores, stores, 'an unchanged configuration changes nothing')
  const swapped = [
    { ...STORES[0], name: 'Token', globalDefault: false },
    { ...STORES[1], name: 'Software', globalDefault: true },
  ]
  await syncSecretStores(database, swapped)
  t.match((await call('GET', '/global-default')).body, { name: 'Software', crypto_plugin: 'p11_crypto' })
  await syncSecretStores(database, STORES)
  t.equal((await call('POST', `/${idOf('Token')}/preferred`, admin)).status, 204)
  const error = await syncSecretStores(database, [STORES[0]]).then(
    () => null,
    reason => reason,
  )
  t.ok(error instanceof StoreStillPreferred)
  t.match(error.message, /"Token" is no longer configured, but 1 project prefers it/)
  t.equal((await call('DELETE', `/${idOf('Token')}/preferred`, admin)).status, 204)
  await syncSecretStores(database, [STORES[0]])
  t.match((await call('GET', '')).body, { secret_stores: [{ name: 'Software' }] })
  await t.rejects(requireBackends(database, ['simple_crypto']), /1 project keys are in the crypto back end p11_crypto/)
  await Promise.all([1, 2, 3].map(() => syncSecretStores(database, STORES)))
  t.match((await call('GET', '')).body.secret_stores, { length: 2 })
})

t.test('without multiple secret stores, the routes are 404 and storing takes one statement', async t => {
  const plain = await startTestKeyManager()
  t.teardown(plain.stop)
  const id = idOf('Software')
  const routes = [
    'GET ',
    'GET /global-default',
    'GET /preferred',
    `GET /${id}`,
    `POST /${id}/preferred`,
    `DELETE /${id}/preferred`,
  ]
  for (const route of routes) {
    const [method = '', path = ''] = route.split(' ')
    const answer = await plain.ask(method, `/v1/secret-stores${path}`, undefined, { token: admin })
    t.equal(answer.status, 404, route)
  }
  await plain.store()
  t.equal((await plain.statementsOf(() => plain.store())).length, 1)
  t.equal((await manager.statementsOf(() => store())).length, 2)
})
