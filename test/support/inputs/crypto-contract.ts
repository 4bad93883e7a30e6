import type { Test } from 'tap'
import {
  CannotOpen,
  type CryptoBackend,
  CryptoUnavailable,
  type ProjectKey,
} from '../../../controller/key-manager/crypto/backend.js'

/** The contract of every crypto back end. @param another a second master key that the back end knows */
export async function keepsCryptoContract(t: Test, backend: CryptoBackend, another: string): Promise<void> {
  const master = backend.firstMasterKeyId
  const keyFor = async (id: string): Promise<ProjectKey> => ({ id, ...(await backend.createProjectKey(master)) })
  const flip = (bytes: Buffer, at: number): Buffer => {
    const changed = Buffer.from(bytes)
    changed[at] = (changed[at] ?? 0) ^ 1
    return changed
  }
  const key = await keyFor('contract-1')

  await t.test('what was encrypted is decrypted, even empty or long', async t => {
    for (const plaintext of [Buffer.alloc(0), Buffer.from('hello'), Buffer.alloc(300_000, 7)]) {
      const sealed = await backend.encrypt(key, plaintext, 'here')
      t.ok((await backend.decrypt(key, sealed, 'here')).equals(plaintext), `${plaintext.length} bytes`)
    }
  })

  await t.test('equal plaintexts have different ciphertexts', async t => {
    const plaintext = Buffer.from('a secret that is long enough to be found')
    const [one, other] = [await backend.encrypt(key, plaintext, 'here'), await backend.encrypt(key, plaintext, 'here')]
    t.notOk(one.equals(other))
    t.notOk(one.includes('secret'))
  })

  await t.test(
    'with another place, any change, a cut or another key, nothing is decrypted, and the error gives no reason',
    async t => {
      const sealed = await backend.encrypt(key, Buffer.from('hello'), 'secret 1')
      const refused = async (what: string, opening: Promise<Buffer>) => {
        const error = await opening.then(
          () => null,
          reason => reason,
        )
        t.ok(error instanceof CannotOpen, `${what}: ${error}`)
        t.notMatch(String(error?.stack), 'hello')
      }
      await refused('swapped', backend.decrypt(key, sealed, 'secret 2'))
      for (const at of [0, 12, sealed.length - 1]) {
        await refused(`byte ${at}`, backend.decrypt(key, flip(sealed, at), 'secret 1'))
      }
      for (const length of [0, 5, 12, 28, sealed.length - 1]) {
        await refused(`cut to ${length}`, backend.decrypt(key, sealed.subarray(0, length), 'secret 1'))
      }
      await refused('another key', backend.decrypt(await keyFor('contract-2'), sealed, 'secret 1'))
      t.ok((await backend.decrypt(key, sealed, 'secret 1')).equals(Buffer.from('hello')), 'the back end still works')
    },
  )

  await t.test('a wrapped key that was changed or cut does not unwrap', async t => {
    const other = await keyFor('contract-3')
    const changed = { ...other, id: 'contract-4', wrapped: flip(other.wrapped, other.wrapped.length - 2) }
    await t.rejects(backend.encrypt(changed, Buffer.from('x'), 'here'), CannotOpen)
    const cut = { ...other, id: 'contract-5', wrapped: other.wrapped.subarray(0, 9) }
    await t.rejects(backend.encrypt(cut, Buffer.from('x'), 'here'), CannotOpen)
  })

  await t.test('keys are all different, and still work after the back end forgot them', async t => {
    const [one, other] = [await keyFor('contract-6'), await keyFor('contract-7')]
    t.notOk(one.wrapped.equals(other.wrapped))
    const sealed = await backend.encrypt(one, Buffer.from('hello'), 'here')
    backend.forget(one.id)
    t.equal(String(await backend.decrypt(one, sealed, 'here')), 'hello')
  })

  await t.test('a key stays the same under another master key', async t => {
    const old = await keyFor('contract-8')
    const sealed = await backend.encrypt(old, Buffer.from('hello'), 'here')
    const rewrapped = { id: 'contract-9', ...(await backend.rewrapProjectKey(old, another)) }
    t.equal(rewrapped.masterKeyId, another)
    t.notOk(rewrapped.wrapped.equals(old.wrapped))
    t.equal(String(await backend.decrypt(rewrapped, sealed, 'here')), 'hello')
    const mixed = { ...rewrapped, id: 'contract-10', masterKeyId: master }
    await t.rejects(backend.decrypt(mixed, sealed, 'here'), CannotOpen)
  })

  await t.test('master keys are known, and known again after they are forgotten', async t => {
    t.equal(await backend.knowsMasterKey(master), true)
    t.equal(await backend.knowsMasterKey(another), true)
    t.equal(await backend.knowsMasterKey('nothing-of-that-name'), false)
    const checkValue = await backend.makeCheckValue(master)
    t.equal(await backend.matchesCheckValue(master, checkValue), true)
    t.equal(await backend.matchesCheckValue(another, checkValue), false)
    t.equal(await backend.matchesCheckValue(master, flip(checkValue, checkValue.length - 2)), false)
    const error = await backend.createProjectKey('nothing-of-that-name').then(
      () => null,
      reason => reason,
    )
    t.ok(error instanceof CryptoUnavailable)
    t.equal(error.status, 503)
    t.match(error.reason, 'nothing-of-that-name', 'operators get the reason')
    t.notMatch(error.message, 'nothing-of-that-name', 'callers do not')
  })

  await t.test('many calls run at once', async t => {
    const keys = await Promise.all(Array.from({ length: 20 }, (_, at) => keyFor(`contract-many-${at}`)))
    const opened = await Promise.all(
      keys.map(async (each, at) => {
        const sealed = await backend.encrypt(each, Buffer.from(`value ${at}`), `place ${at}`)
        return String(await backend.decrypt(each, sealed, `place ${at}`))
      }),
    )
    t.same(
      opened,
      keys.map((_, at) => `value ${at}`),
    )
  })
}
