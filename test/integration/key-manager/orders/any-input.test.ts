import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { createCaBackends } from '../../../../controller/key-manager/certificate-authorities/backends.js'
import { createKeyring } from '../../../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../../../controller/key-manager/crypto/master-key.js'
import { createSimpleCrypto } from '../../../../controller/key-manager/crypto/simple/backend.js'
import { preferredBackend, syncSecretStores } from '../../../../controller/key-manager/secret-stores/sync.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { everyRole, record, text, tryFamily } from '../../../support/inputs/key-manager-any-input.js'

const backend = createSimpleCrypto({ origin: 'the test', remedy: '', keys: [randomBytes(32)], reread: null })
const api = await startTestKeyManager(
  { crypto: { enable_multiple_secret_stores: true } },
  undefined,
  async database => {
    await requireMasterKeys(database, backend)
    await syncSecretStores(database, [{ name: 'Software', backend: 'simple_crypto', globalDefault: true }])
    return createKeyring(database, [backend], projectId => preferredBackend(database, projectId))
  },
)
t.teardown(api.stop)
for (const authority of createCaBackends(api)) await authority.prepare()

const made = async (path: string, body?: unknown) => {
  const reply = await api.ask('POST', path, body, { token: everyRole })
  if (reply.status >= 300) throw new Error(`POST ${path}: ${reply.status} ${reply.text}`)
  return String(Object.values(reply.body)[0]).slice(-36)
}
const key = { type: 'key', meta: { name: 'k', algorithm: 'aes', bit_length: 256, mode: 'cbc' } }
const orders = await Promise.all([1, 2, 3].map(() => made('/v1/orders', key)))
const root = String((await api.database('certificate_authority').whereNull('parent_id').first('id')).id)
const subordinate = (parent: string) => ({
  name: 'Sub',
  subject_dn: 'CN=Sub,O=Tests',
  parent_ca_ref: `${api.url}/v1/cas/${parent}`,
})
const [first, listed, removable] = await Promise.all([1, 2, 3].map(() => made('/v1/cas', subordinate(root))))
// The first CA added becomes the preferred one.
for (const id of [root, first, listed]) await made(`/v1/cas/${id}/add-to-project`)
await made(`/v1/cas/${root}/set-global-preferred`)
const { body } = await api.ask('GET', '/v1/secret-stores/global-default', undefined, { token: everyRole })
const store = String(body.secret_store_ref).slice(-36)
await made(`/v1/secret-stores/${store}/preferred`)
const containerRef = `${api.url}/v1/containers/${await made('/v1/containers', { type: 'generic' })}`

const algorithm = fc.constantFrom('aes', 'hmacsha256', 'rsa', 'ec', 'dsa', 'AES', 'des', 'nonsense')
const bits = fc.constantFrom(64, 128, 256, 384, 512, 521, 1024, 2048, 4096, 7, 0, -8, 32768, 1e10, 1.5, '256')
const subject = fc.oneof(
  fc.constantFrom(
    'CN=www.example.org',
    'CN=a\\,b,O=c',
    'CN=,',
    'CN=#04024869',
    `CN=${'x'.repeat(300)}`,
    '=',
    ',,,',
    '\\',
  ),
  text,
)
const pem = `-----BEGIN CERTIFICATE REQUEST-----\n${Buffer.alloc(300, 0x30).toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`
const keyMeta = record(
  {
    name: text,
    algorithm,
    bit_length: bits,
    mode: text,
    expiration: text,
    payload_content_type: text,
    curve: text,
    passphrase: text,
  },
  ['algorithm', 'bit_length'],
)
const certificateMeta = record({
  name: text,
  request_type: fc.constantFrom('custom', 'simple-cmc', 'stored-key', 'full-cmc', 'nonsense'),
  ca_id: fc.constantFrom(root, first, 'x', '00000000-0000-4000-8000-000000000000'),
  request_data: fc.oneof(fc.constantFrom(pem, Buffer.from(pem).toString('base64'), 'AAAA'), text),
  container_ref: fc.constantFrom(containerRef, 'x', `${api.url}/v1/containers/`),
  subject_dn: subject,
  algorithm,
  bit_length: bits,
  extensions: text,
  profile: text,
})
const order = fc.oneof(
  record({ type: fc.constantFrom('key', 'asymmetric'), meta: keyMeta }, ['type', 'meta']),
  record({ type: fc.constant('certificate'), meta: certificateMeta }, ['type', 'meta']),
)
const authority = record(
  {
    name: text,
    subject_dn: subject,
    parent_ca_ref: fc.constantFrom(`${api.url}/v1/cas/${root}`, `${api.url}/v1/cas/${first}`, 'x', '/v1/cas/'),
    description: text,
  },
  ['name', 'subject_dn', 'parent_ca_ref'],
)

tryFamily(t, {
  api,
  // PUT on orders always answers 405.
  pattern: /^(?!PUT).* \/v1\/(orders|cas|secret-stores)/,
  last: [],
  bodies: [
    [/ \/v1\/orders$/, order],
    [/ \/v1\/cas$/, authority],
  ],
  present: {
    orders,
    cas: [root, String(first), String(listed), String(removable)],
    'secret-stores': [store],
  },
  certain: {
    'POST /v1/orders': { path: '/v1/orders', sent: { body: key } },
    'POST /v1/cas': { path: '/v1/cas', sent: { body: subordinate(root) } },
    'POST /v1/cas/:id/remove-from-project': { path: `/v1/cas/${listed}/remove-from-project`, sent: {} },
    'POST /v1/cas/:id/set-preferred': { path: `/v1/cas/${root}/set-preferred`, sent: {} },
    'POST /v1/cas/:id/set-global-preferred': { path: `/v1/cas/${root}/set-global-preferred`, sent: {} },
    'DELETE /v1/cas/:id': { path: `/v1/cas/${removable}`, sent: {} },
    'DELETE /v1/orders/:id': { path: `/v1/orders/${orders[0]}`, sent: {} },
    'DELETE /v1/secret-stores/:id/preferred': { path: `/v1/secret-stores/${store}/preferred`, sent: {} },
  },
})
