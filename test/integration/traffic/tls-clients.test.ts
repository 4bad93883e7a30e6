import { X509Certificate } from 'node:crypto'
import { connect, type SecureVersion } from 'node:tls'
import t from 'tap'
import { aPolicy, aRule } from '../../golden/l7-models.js'
import { aListener, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, serveOptions } from '../../support/clients/options-traffic.js'
import {
  certificateOf,
  fetchByCurl,
  keepMaterial,
  presenting,
  shakeHands,
  valuesOf,
} from '../../support/clients/tls-traffic.js'
import {
  makeExpiredPair,
  makePair,
  makeRevocationList,
  type Pair,
  type PairOptions,
} from '../../support/inputs/certificates.js'
import { startTellingMember, type Told } from '../../support/services/telling-member.js'

/** Certificates of clients: who may connect, which policies match, and what members hear of them. */

const kept = keepMaterial()
const ca = makePair({ subject: '/CN=clients' })
const client = (subject: string, options: PairOptions = {}) => makePair({ subject, issuer: ca, ...options })
const alice = client('/CN=Alice/O=Krater/OU=it-ops')
const bob = client('/CN=Bob/O=Krater')
const revoked = client('/CN=Carol/OU=it-ops')
const expired = makeExpiredPair('Dave', ca)
const stranger = makePair({ subject: '/CN=Alice/O=Krater/OU=it-ops', issuer: makePair({ subject: '/CN=clients' }) })

const www = kept.certificate(certificateOf(['www.example.com']))
const clientCaTlsContainerRef = kept.authority(ca.certificate)
const clientCrlContainerRef = kept.revocationList(makeRevocationList(ca, revoked), ca)

const SSL = ['Verify', 'Has-Cert', 'DN', 'CN', 'SHA1', 'Not-Before', 'Not-After']
const HEADERS = [...SSL.map(name => `X-SSL-Client-${name}`), 'X-SSL-Issuer', 'X-Forwarded-Proto']
const insertHeaders = Object.fromEntries(HEADERS.map(name => [name, 'true']))

const [first, second] = [await startTellingMember(t, 'first'), await startTellingMember(t, 'second')]
const tls = { protocol: 'TERMINATED_HTTPS', defaultTlsContainerRef: www, defaultPoolId: uuid(3, 1) } as const
const authenticating = (clientAuthentication: 'NONE' | 'OPTIONAL' | 'MANDATORY') =>
  ({ ...tls, clientAuthentication, clientCaTlsContainerRef, clientCrlContainerRef }) as const
const rule = (number: number, change: Parameters<typeof aRule>[1]) =>
  aRule(number, { compareType: 'EQUAL_TO', ...change })
const to = (page: string) => ({ action: 'REDIRECT_TO_URL', redirectUrl: `https://www.example.com/${page}` }) as const
const toSecond = { action: 'REDIRECT_TO_POOL', redirectPoolId: uuid(3, 2) } as const

const { port } = await serveOptions(t, {
  material: kept.material,
  pools: [first, second].map((member, index) => aPool(index + 1, { members: [aLocalMember(index + 1, member.port)] })),
  listeners: [
    aListener(1, { ...authenticating('OPTIONAL'), insertHeaders }),
    aListener(2, authenticating('MANDATORY')),
    aListener(3, { ...authenticating('NONE'), insertHeaders }),
    aListener(4, { ...authenticating('OPTIONAL'), clientCrlContainerRef: null }),
    aListener(5, {
      ...{ ...authenticating('OPTIONAL'), insertHeaders },
      l7Policies: [
        aPolicy(1, {
          ...to('renew'),
          rules: [
            rule(11, { type: 'SSL_CONN_HAS_CERT', value: 'true' }),
            rule(12, { type: 'SSL_VERIFY_RESULT', value: '10' }),
          ],
        }),
        aPolicy(2, { ...to('login'), rules: [rule(21, { type: 'SSL_CONN_HAS_CERT', value: 'True', invert: true })] }),
        aPolicy(3, {
          ...toSecond,
          rules: [
            rule(31, { type: 'SSL_DN_FIELD', key: 'CN', value: 'Alice' }),
            rule(32, { type: 'SSL_DN_FIELD', compareType: 'REGEX', key: 'OU', value: '^it-' }),
          ],
        }),
      ],
    }),
    aListener(6, {
      ...{ ...authenticating('OPTIONAL'), insertHeaders },
      l7Policies: [
        aPolicy(4, { ...to('bad'), rules: [rule(41, { type: 'SSL_VERIFY_RESULT', value: '0', invert: true })] }),
        aPolicy(5, { ...toSecond, rules: [rule(51, { type: 'SSL_VERIFY_RESULT', value: '0' })] }),
      ],
    }),
    aListener(7, tls),
  ],
})

/** The outcome of a request: the member that answered, where HAProxy sends the client, or `refused`. */
async function outcome(listener: number, certificate: Pair | null): Promise<string> {
  const args = certificate === null ? [] : presenting(certificate)
  const fetched = await fetchByCurl(port(listener), 'www.example.com', '/', args)
  if (fetched.status === 0) return /alert|reset|SSL_read|closed/.test(fetched.error) ? 'refused' : fetched.error
  const [location] = valuesOf(fetched, 'location')
  return location ?? (JSON.parse(fetched.body) as Told).name
}

async function headersSeen(listener: number, certificate: Pair | null, sent: string[] = []) {
  const args = certificate === null ? [] : presenting(certificate)
  const forged = sent.flatMap(name => ['--header', `${name}: forged`])
  const { body } = await fetchByCurl(port(listener), 'www.example.com', '/', [...args, ...forged])
  const { headers } = JSON.parse(body) as Told
  return Object.fromEntries(Object.entries(headers).filter(([name]) => /^x[-_]|forged/.test(name)))
}

t.test('client_authentication says whether a client needs a certificate, and which are good', async t => {
  const clients: [string, Pair | null, ...outcomes: string[]][] = [
    ['without', null, 'first', 'refused', 'first', 'first'],
    ['a good one', alice, 'first', 'first', 'first', 'first'],
    ['a revoked one', revoked, 'refused', 'refused', 'first', 'first'],
    ['an expired one', expired, 'refused', 'refused', 'first', 'refused'],
    ['another CA’s', stranger, 'refused', 'refused', 'first', 'refused'],
  ]
  for (const [name, certificate, ...expected] of clients) {
    const outcomes: string[] = []
    for (const listener of [1, 2, 3, 4]) outcomes.push(await outcome(listener, certificate))
    t.same(outcomes, expected, name)
  }
  const asks = async (listener: number) => (await shakeHands(port(listener), null)).output.includes('CN = clients')
  t.ok(await asks(1), 'it names the CA')
  t.notOk(await asks(3), 'it asks for none')
})

/** A request over a connection that resumes a session if it has one: what is answered, and the newest session. */
function askOver(version: SecureVersion, listener: number, session?: Buffer) {
  const authentic = { servername: 'www.example.com', rejectUnauthorized: false }
  const options = { host: '127.0.0.1', port: port(listener), minVersion: version, maxVersion: version, session }
  return new Promise<{ answer: string; session?: Buffer }>(resolve => {
    let [answer, newest] = ['', undefined as Buffer | undefined]
    const socket = connect({ ...authentic, ...options }, () =>
      socket.end('GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n'),
    )
    socket.on('session', made => (newest = made))
    socket.on('data', piece => (answer += piece))
    socket.on('error', () => undefined)
    socket.on('close', () => resolve({ answer: answer.split('\r\n')[0] ?? '', session: newest }))
  })
}

t.test('a session of another listener does not stand for a certificate', async t => {
  for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
    for (const from of [3, 7]) {
      const { answer, session } = await askOver(version, from)
      t.match(answer, ' 200 ', `${version}: listener ${from} needs none`)
      t.same((await askOver(version, 2, session)).answer, '', `${version}: with its session, listener 2 refuses`)
    }
  }
})

t.test('rules see certificates, and let in the bad ones that they are about', async t => {
  const page = (name: string) => `https://www.example.com/${name}`
  const clients: [string, Pair | null, ...outcomes: string[]][] = [
    ['without', null, page('login'), 'second'],
    ['a matching one', alice, 'second', 'second'],
    ['another name', bob, 'first', 'second'],
    ['an expired one', expired, page('renew'), page('bad')],
    ['a revoked one', revoked, 'refused', page('bad')],
    ['another CA’s', stranger, 'refused', page('bad')],
  ]
  for (const [name, certificate, ...expected] of clients) {
    t.same([await outcome(5, certificate), await outcome(6, certificate)], expected, name)
  }
})

t.test('members hear of the certificate, and of TLS', async t => {
  const { validFrom, fingerprint } = new X509Certificate(alice.certificate)
  const year = new Date(validFrom).getUTCFullYear() % 100
  t.match(await headersSeen(1, alice), {
    'x-ssl-client-verify': '0',
    'x-ssl-client-has-cert': '1',
    'x-ssl-client-dn': '/CN=Alice/O=Krater/OU=it-ops',
    'x-ssl-client-cn': 'Alice',
    'x-ssl-issuer': '/CN=clients',
    'x-ssl-client-sha1': fingerprint.replaceAll(':', ''),
    'x-ssl-client-not-before': new RegExp(`^${year}\\d{10}Z$`),
    'x-ssl-client-not-after': /^\d{12}Z$/,
    'x-forwarded-proto': 'https',
  })
  t.match(await headersSeen(1, null), { 'x-ssl-client-verify': '0', 'x-ssl-client-has-cert': '0' })
})

t.test('what a client sends under those names never arrives', async t => {
  const spellings = [
    ...HEADERS,
    ...HEADERS.map(name => name.toLowerCase()),
    ...HEADERS.map(name => name.toUpperCase()),
    ...HEADERS.map(name => name.replaceAll('-', '_')),
    ...['X-SSL_Client-Verify', 'x_ssl-client-cn', 'X-SSL-Client-Other', 'X-SSL-'],
  ]
  const ssl = spellings.filter(name => !/proto/i.test(name))
  for (const listener of [7, 3, 1]) {
    const seen = await headersSeen(listener, null, [...ssl, 'X-Forwarded-Proto'])
    const forged = Object.entries(seen).filter(([, value]) => value.includes('forged'))
    t.same(
      forged.map(([name]) => name),
      listener === 7 ? ['x-forwarded-proto'] : [],
      `listener ${listener}`,
    )
  }
  t.match(await headersSeen(1, alice, ssl), { 'x-ssl-client-cn': 'Alice', 'x-ssl-client-verify': '0' })
  t.same(await headersSeen(7, null, ssl), {})
})
