import { createPrivateKey, createPublicKey } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { getPriority } from 'node:os'
import t from 'tap'
import { generateKeyPair } from '../../../controller/key-manager/crypto/key-pair.js'
import { computeOnThread } from '../../../controller/process/compute-thread.js'

const niceThreads = (): number =>
  readdirSync('/proc/self/task').filter(task => getPriority(Number(task)) === Math.max(10, getPriority())).length

t.test('a key pair has the ordered algorithm and is encrypted with its passphrase', async t => {
  for (const [algorithm, bits] of [
    ['rsa', 2048],
    ['dsa', 2048],
    ['ec', 256],
  ] as const) {
    const { privateKey, publicKey } = await generateKeyPair(algorithm, bits, 'a passphrase')
    t.match(privateKey, /^-----BEGIN ENCRYPTED PRIVATE KEY-----/)
    const key = createPrivateKey({ key: privateKey, passphrase: 'a passphrase' })
    t.equal(key.asymmetricKeyType, algorithm)
    t.equal(createPublicKey(key).export({ type: 'spki', format: 'pem' }), publicKey)
  }
})

t.test('prime searches run at low priority, and their threads are reused', async t => {
  await Promise.all([generateKeyPair('rsa', 2048), generateKeyPair('rsa', 2048)])
  const threads = niceThreads()
  t.equal(threads, 2)
  await generateKeyPair('rsa', 2048)
  t.equal(niceThreads(), threads)
})

t.test('a failing computation rejects, and its thread is reused', async t => {
  const cost = { N: 3, r: 8, p: 1 }
  await t.rejects(computeOnThread({ kind: 'scrypt', password: 'x', salt: Buffer.from('salt'), bytes: 32, cost }), {
    message: /scrypt/i,
  })
  await generateKeyPair('rsa', 2048)
  t.equal(niceThreads(), 2)
})
