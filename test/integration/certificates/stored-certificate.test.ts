import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { createKeyManagerClient } from '../../../controller/certificates/barbican/key-manager-client.js'
import { followStoredCertificate } from '../../../controller/certificates/barbican/stored-certificate.js'
import { readServerCertificate } from '../../../controller/http/tls/server-certificate.js'
import { Unusable } from '../../../x509/material/material.js'
import { makeBundle, makePair } from '../../support/inputs/certificates.js'

const ID = '01234567-89ab-cdef-0123-456789abcdef'
const secret = (digit: number) => `http://k/v1/secrets/${ID.slice(0, -1)}${digit}`
const root = makePair({ subject: '/CN=root' })
const above = makePair({ subject: '/CN=above', issuer: root, args: ['-addext', 'basicConstraints=critical,CA:TRUE'] })
const [first, second] = ['first', 'second'].map(name => makePair({ subject: `/CN=${name}`, issuer: above }))
if (first === undefined || second === undefined) throw new Error('No certificates.')

/**
 * A key manager whose answers a test changes, which the real one's immutable secrets do not allow. A payload is asked for
 * by the content type of its record.
 */
async function keyManager(t: Test, answers: Map<string, string | Buffer | number>, tokens = ['t1']) {
  const asked: string[] = []
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '', 'http://k').pathname.replace('/v1/', '')
    asked.push(path)
    const answer = tokens.includes(String(request.headers['x-auth-token'])) ? answers.get(path) : 401
    response.statusCode = typeof answer === 'number' ? answer : answer === undefined ? 404 : 200
    response.end(typeof answer === 'number' ? '' : answer)
  })
  await new Promise<void>(resolve => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const client = createKeyManagerClient({
    url,
    security: { insecure: false },
    connectTimeoutSeconds: 2,
    answerSeconds: 5,
  })
  t.teardown(() => {
    client.close()
    server.closeAllConnections()
    server.close()
  })
  let token = 'old'
  const serviceUser = {
    signedIn: async () => ({ token, userId: 'u' }),
    discard: () => {
      token = 't1'
    },
  }
  return { asked, follow: (ref: string) => followStoredCertificate(ref, { client, serviceUser, seconds: 5 }) }
}

const nameOf = (stored: { certificate: string; key: string } | null): string | null =>
  stored === null ? null : readServerCertificate(stored.certificate, stored.key).leaf.subject

const record = (type: string, more = '') => JSON.stringify({ content_types: { default: type }, more })

t.test(
  'a container: payloads are read when its record changes, and a changed certificate is returned once',
  async t => {
    const container = (certificate: number, note = '') =>
      JSON.stringify({
        ...{ type: 'certificate', note },
        secret_refs: [
          { name: 'certificate', secret_ref: secret(certificate) },
          { name: 'private_key', secret_ref: secret(certificate + 1) },
          { name: 'intermediates', secret_ref: secret(5) },
        ],
      })
    const answers = new Map<string, string | Buffer | number>([[`containers/${ID}`, container(1)]])
    const contents = [
      first.certificate,
      first.privateKey,
      second.certificate,
      second.privateKey,
      above.certificate + root.certificate,
    ]
    for (const [at, content] of contents.entries()) {
      const path = secret(at + 1).replace('http://k/v1/', '')
      answers.set(path, record('text/plain'))
      answers.set(`${path}/payload`, content)
    }
    const { asked, follow } = await keyManager(t, answers)
    const read = follow(`http://k/v1/containers/${ID}`)
    const stored = await read()
    t.equal(nameOf(stored), 'CN=first')
    t.equal(stored?.certificate.match(/BEGIN/g)?.length, 2, 'with the CA above it, without the root')
    const before = asked.length
    t.equal(await read(), null)
    t.same(asked.slice(before), [`containers/${ID}`], 'an unchanged record costs one request, and no payload')
    answers.set(`containers/${ID}`, container(1, 'another consumer'))
    t.equal(await read(), null, 'the same certificate')
    answers.set(`containers/${ID}`, container(3))
    t.equal(nameOf(await read()), 'CN=second')
    t.equal(await read(), null)
  },
)

t.test('a secret with a PKCS#12 bundle; what is wrong with a reference is said, and tried again', async t => {
  const answers = new Map<string, string | Buffer | number>()
  const { follow } = await keyManager(t, answers)
  const read = follow(`${secret(1)}`)
  const path = secret(1).replace('http://k/v1/', '')
  const refusedWith = (message: RegExp) => t.rejects(read(), { message, constructor: Unusable })
  await refusedWith(/^our service user gets 404 for \/v1\/secrets\/\S+: it does not exist, or no ACL/)
  answers.set(path, record('application/octet-stream'))
  answers.set(`${path}/payload`, 403)
  await refusedWith(/gets 403/)
  answers.set(`${path}/payload`, 'nonsense')
  await refusedWith(/not a PKCS#12 bundle/)
  answers.set(`${path}/payload`, makeBundle(first))
  t.equal(nameOf(await read()), 'CN=first')
  answers.set(path, 500)
  await t.rejects(read(), { message: /with 500/ })
  answers.set(path, record('application/octet-stream'))
  t.equal(await read(), null)
})
