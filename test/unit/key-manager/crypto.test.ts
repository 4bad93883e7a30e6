import { randomBytes } from 'node:crypto'
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parseConfiguration } from '../../../controller/config/load.js'
import { CannotOpen, CryptoUnavailable } from '../../../controller/key-manager/crypto/backend.js'
import { createKeyCache } from '../../../controller/key-manager/crypto/key-cache.js'
import { createSimpleCrypto, masterKeyId } from '../../../controller/key-manager/crypto/simple/backend.js'
import {
  masterKeySource,
  readMasterKeys,
  writeMasterKeys,
} from '../../../controller/key-manager/crypto/simple/master-keys.js'
import { ConfigurationError } from '../../../controller/options/configuration-error.js'
import { readSecret } from '../../../controller/options/secret-source.js'
import { keepsCryptoContract } from '../../support/inputs/crypto-contract.js'
import { until } from '../../support/worlds/krater.js'

const source = (keys: Buffer[], reread: (() => Promise<Buffer[]>) | null = null) => ({
  origin: 'the test',
  remedy: 'Do something.',
  keys,
  reread,
})
const crypto = (yaml: string) => parseConfiguration(`key_manager: {crypto: ${yaml}}`, {})
const failure = (work: Promise<unknown>): Promise<Error> =>
  work.then(
    () => t.fail('it did not fail') as never,
    error => error,
  )

t.test('simple_crypto meets the contract of crypto back ends', async t => {
  const [one, two] = [randomBytes(32), randomBytes(32)]
  await keepsCryptoContract(t, createSimpleCrypto(source([one, two])), masterKeyId(two))
})

t.test('data stored with known keys stays readable', async t => {
  const master = Buffer.alloc(32, 1)
  const backend = createSimpleCrypto(source([master]))
  t.equal(masterKeyId(master), KNOWN.masterKeyId)
  const key = { id: 'known', masterKeyId: KNOWN.masterKeyId, wrapped: Buffer.from(KNOWN.wrapped, 'hex') }
  t.equal(String(await backend.decrypt(key, Buffer.from(KNOWN.sealed, 'hex'), 'secret 1')), 'known answer')
  t.equal(await backend.matchesCheckValue(KNOWN.masterKeyId, Buffer.from(KNOWN.checkValue, 'hex')), true)
})

t.test('a wrong master key does not unwrap, even under the right id', async t => {
  const [right, wrong] = [randomBytes(32), randomBytes(32)]
  const key = { id: 'k', ...(await createSimpleCrypto(source([right])).createProjectKey(masterKeyId(right))) }
  const other = createSimpleCrypto(source([wrong]))
  await t.rejects(other.encrypt({ ...key, masterKeyId: masterKeyId(wrong) }, Buffer.from('x'), 'c'), CannotOpen)
  const error = await failure(other.encrypt(key, Buffer.from('x'), 'c'))
  t.ok(error instanceof CryptoUnavailable && error.reason.includes(masterKeyId(right)))
  t.match(error instanceof CryptoUnavailable && error.reason, /the test has only [0-9a-f]{32}\. Do something\./)
  for (const secret of [right, wrong]) t.notMatch(JSON.stringify(error) + error.stack, secret.toString('hex'))
})

t.test('a running process loads a new master key when it needs one, and keeps the former', async t => {
  const [old, fresh] = [randomBytes(32), randomBytes(32)]
  // However slow the machine is, no second passes.
  const begun = performance.now()
  t.intercept(performance, 'now', { value: () => begun })
  let looks = 0
  let now = [old]
  const running = createSimpleCrypto(
    source([old], async () => {
      looks++
      return now
    }),
  )
  const key = { id: 'k', ...(await running.createProjectKey(masterKeyId(old))) }
  t.equal(looks, 0, 'known keys do not reread the source')
  now = [fresh]
  const rewrapped = {
    id: 'k',
    ...(await createSimpleCrypto(source([fresh, old])).rewrapProjectKey(key, masterKeyId(fresh))),
  }
  const sealed = await running.encrypt({ ...rewrapped, id: 'k2' }, Buffer.from('x'), 'c')
  t.equal(looks, 1)
  t.equal(String(await running.decrypt({ ...key, id: 'k3' }, sealed, 'c')), 'x', 'the former master key still works')
  await Promise.all(Array.from({ length: 50 }, () => running.knowsMasterKey('none')))
  await running.knowsMasterKey('none')
  t.equal(looks, 2, 'an unknown key does not reread the source every time')
})

t.test('a running process loads master keys that follow each other quickly', async t => {
  const [first, second, third, fourth] = [randomBytes(32), randomBytes(32), randomBytes(32), randomBytes(32)]
  let now = [second]
  const running = createSimpleCrypto(source([first], async () => now))
  t.equal(await running.knowsMasterKey(masterKeyId(second)), true)
  now = [third]
  t.equal(await running.knowsMasterKey(masterKeyId(third)), true, 'at once')
  const early = running.knowsMasterKey('none')
  now = [fourth]
  t.equal(await running.knowsMasterKey(masterKeyId(fourth)), true, 'also if a read has begun before')
  t.equal(await early, false)
})

t.test('an unreadable key source makes the back end unavailable and is read again later', async t => {
  const [old, fresh] = [randomBytes(32), randomBytes(32)]
  let isAway = true
  const running = createSimpleCrypto(
    source([old], async () => {
      if (isAway) throw new Error('/run/key cannot be read: EIO.')
      return [fresh]
    }),
  )
  const key = { id: 'k', ...(await createSimpleCrypto(source([fresh])).createProjectKey(masterKeyId(fresh))) }
  const error = await failure(running.encrypt(key, Buffer.from('x'), 'c'))
  t.ok(error instanceof CryptoUnavailable)
  t.match(
    error instanceof CryptoUnavailable && error.reason,
    /the test had only [0-9a-f]{32}\. \/run\/key cannot be read/,
  )
  isAway = false
  t.equal(await running.knowsMasterKey(masterKeyId(fresh)), false, 'the source is not reread at once')
  const now = performance.now.bind(performance)
  t.intercept(performance, 'now', { value: () => now() + 1000 })
  t.equal(await running.knowsMasterKey(masterKeyId(fresh)), true, 'the source is reread a second later')
  t.ok(await running.encrypt(key, Buffer.from('x'), 'c'))
})

t.test('cached keys are dropped by age, by number and on request', async t => {
  const dropped: string[] = []
  const cache = createKeyCache<string>(2, 60_000, key => dropped.push(key))
  cache.set('1', 'one')
  cache.set('2', 'two')
  cache.set('3', 'three')
  t.same([cache.get('1'), cache.get('2'), cache.get('3')], [undefined, 'two', 'three'])
  cache.forget('2')
  t.equal(cache.get('2'), undefined)
  cache.clear()
  t.same(dropped, ['one', 'two', 'three'])
  const brief = createKeyCache<string>(2, 0)
  brief.set('1', 'one')
  t.equal(brief.get('1'), undefined)
  const idle: string[] = []
  createKeyCache<string>(2, 20, key => idle.push(key)).set('1', 'one')
  await until('an idle key is dropped too', () => idle.length === 1)
})

t.test('master keys come from a file, the environment or a command', async t => {
  const directory = t.testdir({})
  const [one, two] = [randomBytes(32), randomBytes(32)]
  const hex = [one, two].map(key => key.toString('hex'))
  const sourceFor = (yaml: string) => masterKeySource(crypto(yaml).key_manager.crypto.simple, directory)
  const file = join(directory, 'keys/key-manager-master')

  t.same(sourceFor('{}'), { kind: 'file', path: file })
  t.same(sourceFor('{simple: {master_key_file: /m}}'), { kind: 'file', path: '/m' })
  writeMasterKeys(file, [one, two])
  t.same(await readMasterKeys(sourceFor('{}')), [one, two], 'newest first')
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.same(readdirSync(join(directory, 'keys')), ['key-manager-master'], 'no other file remains')

  const variable = sourceFor('{simple: {master_key_variable: TEST_MASTER_KEY}}')
  process.env.TEST_MASTER_KEY = `${hex[0]}, ${hex[1]}`
  t.same(await readMasterKeys(variable), [one, two])
  delete process.env.TEST_MASTER_KEY
  await t.rejects(readMasterKeys(variable), /environment variable TEST_MASTER_KEY \(.*master key\) is not set/)

  const argument = `$HOME; "quoted" ${hex[0]}`
  const command = sourceFor(`{simple: {master_key_command: [/bin/echo, ${hex[0]}]}}`)
  t.same(await readMasterKeys(command), [one])
  t.equal(
    await readSecret({ kind: 'command', argv: ['/bin/echo', '-n', argument] }, 'it'),
    argument,
    'no shell interprets it',
  )
})

t.test('an error about a key source names the source and never its content', async t => {
  const directory = t.testdir({ 'not-a-key': 'hunter2' })
  const script = join(directory, 'fails')
  writeFileSync(script, '#!/bin/sh\necho hunter2\necho hunter2 >&2\nexit 3\n')
  chmodSync(script, 0o755)
  const cases: [Parameters<typeof readMasterKeys>[0], RegExp][] = [
    [{ kind: 'file', path: join(directory, 'none') }, /none \(.*\) cannot be read: ENOENT/],
    [{ kind: 'file', path: join(directory, 'not-a-key') }, /must hold keys of 64 hexadecimal digits each/],
    [{ kind: 'command', argv: [script] }, /fails \(.*\) ended with status 3; run it by hand/],
    [{ kind: 'command', argv: ['/nowhere/program'] }, /cannot be run \(ENOENT\)/],
    [{ kind: 'command', argv: ['/usr/bin/yes'] }, /printed too much/],
  ]
  for (const [from, words] of cases) {
    const error = await failure(readMasterKeys(from))
    t.ok(error instanceof ConfigurationError, String(error))
    t.match(error.message, words)
    t.notMatch(error.message + error.stack, 'hunter2')
  }
})

t.test('contradictory settings are refused', async t => {
  t.throws(
    () => crypto('{simple: {master_key_file: /a, master_key_variable: B}}'),
    /one source of the master key: a file/,
  )
  t.throws(() => crypto('{backends: [pkcs11]}'), /path of the PKCS#11 library/)
  t.throws(() => crypto('{backends: []}'), /at least one of the back ends/)
  t.throws(() => crypto('{backends: [simple, simple]}'), /each at most once/)
  t.throws(() => crypto('{simple: {master_key_command: "vault read"}}'), /a list of words/)
  t.throws(
    () => crypto('{simple: {store_name: A}, pkcs11: {store_name: A}}'),
    /different from the name of the other store/,
  )
  const fromEnvironment = parseConfiguration('', {
    KRATER_KEY_MANAGER_CRYPTO_BACKENDS: 'pkcs11, simple',
    KRATER_KEY_MANAGER_CRYPTO_PKCS11_LIBRARY_PATH: '/l.so',
    KRATER_KEY_MANAGER_CRYPTO_PKCS11_PIN_COMMAND: '["/bin/pass", "show", "pin of the token"]',
  }).key_manager.crypto
  t.same(fromEnvironment.backends, ['pkcs11', 'simple'])
  t.same(fromEnvironment.pkcs11.pin_command, ['/bin/pass', 'show', 'pin of the token'])
})

t.test('writing master keys replaces even a read-only file', async t => {
  const directory = t.testdir({})
  const path = join(directory, 'master')
  const keys = [randomBytes(32)]
  writeMasterKeys(path, keys)
  const before = readFileSync(path, 'utf8')
  chmodSync(path, 0o400)
  writeMasterKeys(path, [randomBytes(32), ...keys])
  t.match(readFileSync(path, 'utf8'), new RegExp(`^[0-9a-f]{64}\\n${before}$`))
})

const KNOWN = {
  masterKeyId: '1837db9c4b29de7a05ffd12d111443d6',
  wrapped:
    'c5bbfa6795690227de57c00b2ebce85d78ec98c317d45297675f8639987d747460ba349d61d6d86fc3529c851e38a12bc70565a94357d98d64b97e35',
  sealed: '096ad55fd88278cc20032619c574190f5ce3ce01b53a0fa96f85978281e38b59572d7063d3bc82f9',
  checkValue: 'af796b31a990a3b9a65d1bb4ef34a5ce757ea867a49e11fe346777e0a8ea75009c18ab2f3279d8f7329de466',
}
