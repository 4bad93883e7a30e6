import t from 'tap'
import { aListener, aMonitor, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, ask, serveOptions } from '../../support/clients/options-traffic.js'
import { certificateOf, fetchByCurl, keepMaterial, root } from '../../support/clients/tls-traffic.js'
import { makeBundle, makePair, makeRevocationList } from '../../support/inputs/certificates.js'
import { until } from '../../support/services/haproxy.js'
import { type Negotiated, startTlsMember } from '../../support/services/tls-member.js'

/** What pools with TLS negotiate with their members, and which members they trust. */

const NAME = 'web.example.org'
const kept = keepMaterial()
const clientCa = makePair({ subject: '/CN=balancers' })
const good = certificateOf([NAME])
const authority = kept.authority(root.certificate)
const members = {
  good: await startTlsMember(t, 'good', good),
  stranger: await startTlsMember(t, 'stranger', certificateOf([NAME], { issuer: makePair({ subject: '/CN=x' }) })),
  asking: await startTlsMember(t, 'asking', good, clientCa.certificate),
}

const crlOf = (revoked?: typeof good) => kept.revocationList(makeRevocationList(root, revoked), root)
const client = kept.bundle(makeBundle(makePair({ subject: '/CN=balancer', issuer: clientCa })))
const www = kept.certificate(certificateOf(['www.example.com']))

type Change = Parameters<typeof aPool>[1]
/** By number: what the pool has beside TLS, and its members with the names that they have. */
const pools: [change: Change, ...members: [keyof typeof members, name: string][]][] = [
  [{}, ['stranger', '']],
  [{ caTlsContainerRef: authority }, ['good', NAME]],
  [{ caTlsContainerRef: authority }, ['stranger', NAME]],
  [{ caTlsContainerRef: authority }, ['good', 'other.example.org']],
  [{ caTlsContainerRef: authority, crlContainerRef: crlOf(good) }, ['good', NAME]],
  [{ caTlsContainerRef: authority, crlContainerRef: crlOf() }, ['good', NAME]],
  [{}, ['asking', NAME]],
  [{ tlsContainerRef: client }, ['asking', NAME]],
  [{ tlsVersions: ['TLSv1.2'], tlsCiphers: 'ECDHE-ECDSA-CHACHA20-POLY1305' }, ['good', NAME]],
  [{ tlsVersions: ['TLSv1.3'], tlsCiphers: 'TLS_CHACHA20_POLY1305_SHA256' }, ['good', NAME]],
  [{ alpnProtocols: ['h2'] }, ['good', NAME]],
  [{ alpnProtocols: ['http/1.1', 'h2'] }, ['good', NAME]],
  [{}, ['good', 'a name; of mine']],
  ...(['HTTPS', 'TLS-HELLO', 'HTTP', 'TCP'] as const).map(
    (type, index): [Change, ...['good' | 'stranger', string][]] => [
      {
        caTlsContainerRef: authority,
        healthMonitor: aMonitor(index + 1, { type, delay: 1, timeout: 1, maxRetries: 1, maxRetriesDown: 1 }),
      },
      ['good', NAME],
      ['stranger', NAME],
    ],
  ),
  [
    {
      tlsEnabled: false,
      protocol: 'HTTPS',
      healthMonitor: aMonitor(9, {
        type: 'HTTPS',
        delay: 1,
        timeout: 1,
        maxRetries: 1,
        maxRetriesDown: 1,
        domainName: NAME,
      }),
    },
    ['stranger', NAME],
  ],
]
const MONITORED = [14, 15, 16, 17]
const PASSED_ON = 18

const { port, command } = await serveOptions(t, {
  material: kept.material,
  pools: pools.map(([change, ...own], index) =>
    aPool(index + 1, {
      tlsEnabled: true,
      ...change,
      members: own.map(([member, name], at) => aLocalMember((index + 1) * 10 + at, members[member].port, { name })),
    }),
  ),
  listeners: [
    ...pools.map((_, index) =>
      aListener(index + 1, {
        defaultPoolId: uuid(3, index + 1),
        ...(index + 1 === PASSED_ON && { protocol: 'HTTPS' as const }),
      }),
    ),
    aListener(30, { protocol: 'TERMINATED_HTTPS', defaultTlsContainerRef: www, defaultPoolId: uuid(3, 13) }),
    aListener(31, { protocol: 'TERMINATED_HTTPS', defaultTlsContainerRef: www, defaultPoolId: uuid(3, 2) }),
    aListener(32, { protocol: 'TCP', defaultPoolId: uuid(3, 2) }),
  ],
})

/** What the member says of a request by way of a listener; the status if none answers. */
async function tell(listener: number, host = 'www.example.com'): Promise<Partial<Negotiated> | number> {
  const { status, body } = await ask(port(listener), { headers: { Host: host } })
  return status === 200 ? (JSON.parse(body) as Negotiated) : status
}

t.test('a member needs a good certificate if the pool has a CA', async t => {
  t.match(await tell(1), { name: 'stranger', version: 'TLSv1.3' }, 'without a CA, any')
  t.match(await tell(2), { name: 'good', sni: NAME })
  t.equal(await tell(3), 503, 'of another CA')
  t.equal(await tell(4), 503, 'for another name')
  t.equal(await tell(5), 503, 'revoked')
  t.match(await tell(6), { name: 'good' }, 'not revoked')
})

t.test('the pool’s certificate is what members ask for', async t => {
  t.equal(await tell(7), 502)
  t.match(await tell(8), { name: 'asking', client: 'balancer' })
  t.match(await tell(2), { client: null })
})

t.test('versions, ciphers and protocols are the pool’s', async t => {
  t.match(await tell(9), { version: 'TLSv1.2', cipher: 'ECDHE-ECDSA-CHACHA20-POLY1305', http: '1.1' })
  t.match(await tell(10), { version: 'TLSv1.3', cipher: 'TLS_CHACHA20_POLY1305_SHA256' })
  t.match(await tell(11), { http: '2.0' })
  t.match(await tell(12), { http: /^(1.1|2.0)$/ })
  t.match(await tell(2), { version: 'TLSv1.3', http: '1.1' })
})

t.test(
  'a member is asked for by its host name, or else for what the client asked for, but never for an address',
  async t => {
    t.match(await tell(2), { sni: NAME })
    const hosts: [host: string, sni: string | null][] = [
      ['www.example.com', 'www.example.com'],
      ['WWW.example.com:8443', 'WWW.example.com'],
      ['localhost', 'localhost'],
      ['x_y.example.com', 'x_y.example.com'],
      ['192.0.2.1', null],
      ['192.0.2.1:80', null],
      ['[2001:db8::1]', null],
      ['[2001:db8::1]:80', null],
      ['[::ffff:192.0.2.1]', null],
      ['a b', null],
      ['-', null],
    ]
    for (const [host, sni] of hosts) t.match(await tell(13, host), { name: 'good', sni }, host)
    const secured = async (listener: number, name: string) =>
      JSON.parse((await fetchByCurl(port(listener), name, '/', ['--insecure'])).body) as Negotiated
    t.match(await secured(30, 'any.example.com'), { sni: 'any.example.com' })
    t.match(await secured(30, '127.0.0.1'), { sni: null })
    t.match(await secured(31, 'any.example.com'), { sni: NAME })
    t.match(await tell(32), { name: 'good', sni: NAME }, 'through a TCP listener')
  },
)

t.test('health monitors see what the traffic would see', async t => {
  const statuses = async () => {
    const lines = (await command('show stat')).split('\n').map(line => line.split(','))
    return new Map(lines.map(fields => [fields[1] ?? '', fields[17] ?? '']))
  }
  const [down, up] = [MONITORED.map(pool => uuid(4, pool * 10 + 1)), MONITORED.map(pool => uuid(4, pool * 10))]
  const isSeen = async () => {
    const known = await statuses()
    return down.every(id => known.get(id) === 'DOWN') && up.every(id => known.get(id) === 'UP')
  }
  t.ok(await until(isSeen, 15_000), 'a member with a certificate of another CA is down, and the other is up')
  for (const pool of MONITORED) {
    for (let request = 0; request < 3; request++) t.match(await tell(pool), { name: 'good' })
  }
  t.ok(members.good.paths().includes('/health'), 'HTTPS and HTTP checks send a request')
  t.equal((await statuses()).get(uuid(4, PASSED_ON * 10)), 'UP', 'without a pool’s TLS, any certificate is good')
})
