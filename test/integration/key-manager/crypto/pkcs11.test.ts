import { readdirSync, readFileSync } from 'node:fs'
import pkcs11 from 'pkcs11js'
import t from 'tap'
import {
  type CryptoBackend,
  CryptoMisconfigured,
  CryptoUnavailable,
} from '../../../../controller/key-manager/crypto/backend.js'
import { createKeyring } from '../../../../controller/key-manager/crypto/keyring.js'
import { requireMasterKeys } from '../../../../controller/key-manager/crypto/master-key.js'
import {
  createMasterKey,
  createPkcs11Crypto,
  masterKeyAttributes,
} from '../../../../controller/key-manager/crypto/pkcs11/backend.js'
import {
  createTokenClient,
  type TokenClientOptions,
} from '../../../../controller/key-manager/crypto/pkcs11/token-client.js'
import { CANARY } from '../../../support/canary.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { keepsCryptoContract } from '../../../support/inputs/crypto-contract.js'
import { createSoftToken } from '../../../support/services/softhsm.js'
import { until } from '../../../support/worlds/krater.js'

const token = await createSoftToken(t)
const clientFor = (
  settings: Partial<TokenClientOptions['settings']> = {},
  options: Partial<TokenClientOptions> = {},
) => {
  const client = createTokenClient({
    settings: { ...token.settings, ...settings },
    callMilliseconds: 10_000,
    queueLimit: 1000,
    program: token.program,
    ...options,
  })
  t.teardown(client.stop)
  return client
}
const client = clientFor()
const backend = createPkcs11Crypto(client, 'master 1', 'the token')

const startWith = (used: CryptoBackend) =>
  startTestKeyManager({}, undefined, async database => {
    await requireMasterKeys(database, used)
    return createKeyring(database, [used])
  })

/** Our child processes that hold a token. */
const tokenProcesses = (): number[] =>
  readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number)
    .filter(pid => {
      try {
        const parent = / (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) \S/, ''))?.[1]
        return Number(parent) === process.pid && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('token-process')
      } catch {
        return false
      }
    })

t.test('a master key is created once and cannot leave the token', async t => {
  await t.rejects(masterKeyAttributes(client, 'master 1'), CryptoUnavailable)
  t.equal(await createMasterKey(client, 'master 1'), true)
  t.equal(await createMasterKey(client, 'master 1'), false)
  t.equal(await createMasterKey(client, 'master 2'), true)
  t.same(await masterKeyAttributes(client, 'master 1'), {
    CKA_TOKEN: true,
    CKA_PRIVATE: true,
    CKA_SENSITIVE: true,
    CKA_ALWAYS_SENSITIVE: true,
    CKA_EXTRACTABLE: false,
    CKA_NEVER_EXTRACTABLE: true,
    CKA_WRAP: true,
    CKA_UNWRAP: true,
    CKA_ENCRYPT: false,
    CKA_DECRYPT: false,
  })
})

t.test('pkcs11 keeps the contract of crypto back ends', t => keepsCryptoContract(t, backend, 'master 2'))

t.test('neither a master key nor a project key can be read from the token', async t => {
  await backend.encrypt({ id: 'k', ...(await backend.createProjectKey('master 1')) }, Buffer.from('x'), 'c')
  const library = new pkcs11.PKCS11()
  library.load(token.settings.libraryPath)
  library.C_Initialize()
  const [slot] = library.C_GetSlotList(true)
  if (slot === undefined) throw new Error('There is no slot')
  const session = library.C_OpenSession(slot, pkcs11.CKF_SERIAL_SESSION | pkcs11.CKF_RW_SESSION)
  library.C_Login(session, pkcs11.CKU_USER, token.pin)
  library.C_FindObjectsInit(session, [])
  const objects = library.C_FindObjects(session, 100)
  library.C_FindObjectsFinal(session)
  t.equal(objects.length, 2, 'the token stores no project keys')
  for (const object of objects) {
    t.throws(
      () => library.C_GetAttributeValue(session, object, [{ type: pkcs11.CKA_VALUE }]),
      /CKR_ATTRIBUTE_SENSITIVE/,
    )
    t.throws(
      () =>
        library.C_WrapKey(
          session,
          { mechanism: pkcs11.CKM_AES_KEY_WRAP },
          objects[0] ?? object,
          object,
          Buffer.alloc(64),
        ),
      /CKR_KEY_UNEXTRACTABLE/,
    )
  }
  library.C_Finalize()
})

t.test('an extractable key is refused as a master key', async t => {
  const library = new pkcs11.PKCS11()
  library.load(token.settings.libraryPath)
  library.C_Initialize()
  const [slot] = library.C_GetSlotList(true)
  if (slot === undefined) throw new Error('There is no slot')
  const session = library.C_OpenSession(slot, pkcs11.CKF_SERIAL_SESSION | pkcs11.CKF_RW_SESSION)
  library.C_Login(session, pkcs11.CKU_USER, token.pin)
  const template = [
    { type: pkcs11.CKA_CLASS, value: pkcs11.CKO_SECRET_KEY },
    { type: pkcs11.CKA_KEY_TYPE, value: pkcs11.CKK_AES },
    { type: pkcs11.CKA_TOKEN, value: true },
    { type: pkcs11.CKA_EXTRACTABLE, value: true },
    { type: pkcs11.CKA_LABEL, value: Buffer.from('loose') },
    { type: pkcs11.CKA_VALUE_LEN, value: 32 },
  ]
  library.C_GenerateKey(session, { mechanism: pkcs11.CKM_AES_KEY_GEN }, template)
  library.C_Finalize()
  await t.rejects(clientFor().ask({ call: 'find', label: 'loose' }), CryptoMisconfigured)
})

t.test('a key wrapped with one mechanism is unwrapped by a client that uses another', async t => {
  const other = createPkcs11Crypto(clientFor({ wrapMechanism: 'CKM_AES_KEY_WRAP' }), 'master 1', 'the token')
  const key = { id: 'wrapped-otherwise', ...(await other.createProjectKey('master 1')) }
  const sealed = await other.encrypt(key, Buffer.from('hello'), 'c')
  t.equal(String(await backend.decrypt(key, sealed, 'c')), 'hello')
})

t.test('a token is found by serial number, label or slot', async t => {
  const find = (settings: Partial<TokenClientOptions['settings']>) =>
    clientFor({ labels: [], ...settings }).ask({ call: 'find', label: 'master 1' })
  t.equal(await find({}), true, 'the only token needs no name')
  t.equal(await find({ labels: ['another', token.label] }), true)
  const missing = await find({ labels: ['another'] }).then(
    () => null,
    error => error,
  )
  t.ok(missing instanceof CryptoUnavailable)
  t.match(missing.reason, /No token has the label another; available tokens: krater test \([0-9a-f]+\)/)
  const serialNumber = /\(([0-9a-f]+)\)/.exec(missing.reason)?.[1] ?? ''
  t.equal(await find({ serialNumber }), true)
  await t.rejects(find({ serialNumber: '123' }), { cause: /serial number 123/ })
  await t.rejects(find({ slotId: 3 }), { cause: /Slot 3 has no token/ })
})

t.test('a wrong PIN is tried once and appears in no error', async t => {
  const wrong = clientFor({ pin: '66661234' })
  for (let attempt = 0; attempt < 5; attempt++) {
    const error = await wrong.ask({ call: 'find', label: 'master 1' }).then(
      () => null,
      reason => reason,
    )
    t.ok(error instanceof CryptoMisconfigured)
    t.match(error.reason, /rejected the PIN: CKR_PIN_INCORRECT/)
    t.notMatch(`${error.stack} ${error.reason} ${JSON.stringify(error)}`, '66661234')
  }
  t.notMatch(
    tokenProcesses()
      .map(pid => readFileSync(`/proc/${pid}/cmdline`, 'utf8'))
      .join(),
    token.pin,
  )
})

t.test('a missing library is named in the error', async t => {
  const error = await clientFor({ libraryPath: '/nowhere/lib.so' })
    .ask({ call: 'find', label: 'x' })
    .then(
      () => null,
      reason => reason,
    )
  t.ok(error instanceof CryptoMisconfigured)
  t.match(error.reason, /PKCS#11 library \/nowhere\/lib\.so cannot be loaded/)
})

t.test('a full queue rejects further calls', async t => {
  const short = clientFor({}, { queueLimit: 2 })
  await short.ask({ call: 'find', label: 'master 1' })
  const asked = await Promise.allSettled(
    Array.from({ length: 5 }, () => short.ask({ call: 'find', label: 'master 1' })),
  )
  t.same(
    asked.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected', 'rejected', 'rejected'],
  )
  t.equal(await short.ask({ call: 'find', label: 'master 1' }), true)
})

t.test('a token process that hangs or dies is replaced, and waiting calls complete', async t => {
  const before = tokenProcesses()
  const own = clientFor({}, { callMilliseconds: 500 })
  const running = createPkcs11Crypto(own, 'master 1', 'the token')
  const key = { id: 'lasting', ...(await running.createProjectKey('master 1')) }
  const pidOf = (known: number[]) => tokenProcesses().find(pid => !known.includes(pid)) ?? 0
  const first = pidOf(before)
  process.kill(first, 'SIGSTOP')
  const sealed = await Promise.all([1, 2, 3].map(at => running.encrypt(key, Buffer.from(`value ${at}`), 'c')))
  const second = pidOf(before)
  t.not(second, first, 'the process that hung is replaced')
  t.notOk(tokenProcesses().includes(first))
  process.kill(second, 'SIGKILL')
  const opened = await Promise.all(sealed.map(value => running.decrypt(key, value, 'c')))
  t.same(opened.map(String), ['value 1', 'value 2', 'value 3'])
  await own.stop()
  t.same(tokenProcesses(), before)
})

t.test('the API answers 503 while the token is unavailable, and serves secrets again afterwards', async t => {
  const own = clientFor({ keyCacheMilliseconds: 1 })
  const manager = await startWith(createPkcs11Crypto(own, 'master 1', 'the token'))
  t.teardown(manager.stop)
  const id = await manager.store()
  t.equal((await manager.ask('GET', `/v1/secrets/${id}/payload`)).text, CANARY)
  t.same(await manager.database('project_key').distinct().pluck('backend'), ['p11_crypto'])
  token.remove()
  const away = await manager.ask('GET', `/v1/secrets/${id}/payload`)
  t.equal(away.status, 503)
  t.match(away.body, { code: 503, title: 'Service Unavailable' })
  t.equal(away.headers.get('Retry-After'), '5')
  t.notMatch(away.text, /CKR|softhsm|master/i)
  const body = { payload: 'x', payload_content_type: 'text/plain' }
  t.equal((await manager.ask('POST', '/v1/secrets', body)).status, 503)
  t.equal((await manager.ask('GET', `/v1/secrets/${id}`)).status, 200, 'requests that need no key are served')
  token.insert()
  await until(
    'the token is used again',
    async () => (await manager.ask('GET', `/v1/secrets/${id}/payload`)).status === 200,
  )
  t.equal((await manager.ask('GET', `/v1/secrets/${id}/payload`)).text, CANARY)
  t.equal((await manager.ask('POST', '/v1/secrets', body)).status, 201)
})

t.test('a different master key under the same label is refused', async t => {
  const other = await createSoftToken(t)
  const others = createTokenClient({
    ...{ settings: other.settings, callMilliseconds: 10_000, queueLimit: 10, program: other.program },
  })
  const manager = await startWith(backend)
  t.teardown(async () => {
    await others.stop()
    await manager.stop()
  })
  await manager.store()
  await createMasterKey(others, 'master 1')
  await t.rejects(
    requireMasterKeys(manager.database, createPkcs11Crypto(others, 'master 1', 'the other token')),
    /1 project key needs the active master key master 1 in p11_crypto, but the other token holds a different key/,
  )
})
