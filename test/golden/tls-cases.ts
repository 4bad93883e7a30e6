import type { AcmeChallenge, TlsMaterial } from '../../controller/load-balancer/tree/tree.js'
import type { GoldenCase } from './cases.js'
import { aPolicy, aRule } from './l7-models.js'
import {
  aDualStackVipInterface,
  aListener,
  aMember,
  aMonitor,
  aPool,
  aTree,
  someFacts,
  uuid,
} from './models.js'

const container = (number: number) => `https://keys.example/v1/containers/${uuid(7, number)}`
const secret = (number: number) => `https://keys.example/v1/secrets/${uuid(8, number)}`

/** @param known one character of the digest; null if it is unknown */
const aMaterial = (ref: string, kind: TlsMaterial['kind'], known: string | null): TlsMaterial => ({
  ref,
  kind,
  digest: known?.repeat(64) ?? null,
  problem: null,
})

const INTERMEDIATE =
  'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256'

const SSL_HEADERS = ['Verify', 'Has-Cert', 'DN', 'CN', 'SHA1', 'Not-Before', 'Not-After'].map(
  name => `X-SSL-Client-${name}`,
)

const aChallenge = (number: number, type: AcmeChallenge['type']): AcmeChallenge => ({
  id: uuid(9, number),
  type,
  identifier: `www${number}.example.org`,
  token: `Token_${number}`,
  keyAuthorization: `Token_${number}.${'x'.repeat(43)}`,
  digest: String(number).repeat(64),
})

/** With certificates of its own. */
const aTlsListener = (number: number, change: Parameters<typeof aListener>[1] = {}) =>
  aListener(number, { protocol: 'TERMINATED_HTTPS', defaultTlsContainerRef: container(number), ...change })

/** TLS with clients, with members and in L7 policies. */
export const tlsCases: GoldenCase[] = [
  {
    name: 'challenges-http',
    facts: someFacts(),
    tree: aTree({
      challenges: [aChallenge(1, 'http-01'), aChallenge(2, 'tls-alpn-01')],
      listeners: [aListener(1, { defaultPoolId: uuid(3, 1) }), aTlsListener(2)],
      pools: [aPool(1, { members: [aMember(1)] })],
    }),
  },
  {
    name: 'challenges-tls',
    facts: someFacts(),
    tree: aTree({
      challenges: [aChallenge(1, 'http-01'), aChallenge(2, 'tls-alpn-01'), aChallenge(3, 'tls-alpn-01')],
      listeners: [
        aTlsListener(1, { defaultPoolId: uuid(3, 1), allowedCidrs: ['192.0.2.0/24'] }),
        aListener(2, { protocol: 'TCP', defaultPoolId: uuid(3, 1) }),
      ],
      pools: [aPool(1, { members: [aMember(1)] })],
    }),
  },
  {
    name: 'tls-listeners',
    facts: someFacts({ interfaces: [aDualStackVipInterface()] }),
    tree: aTree({
      additionalVips: [{ address: '2001:db8:1::10', subnetId: uuid(7, 6) }],
      material: [
        aMaterial(container(1), 'certificate', 'a'),
        aMaterial(secret(3), 'authority', 'c'),
        aMaterial(secret(3), 'certificate', 'd'),
        aMaterial(container(5), 'certificate', null),
      ],
      listeners: [
        aTlsListener(1, {
          defaultPoolId: uuid(3, 1),
          sniContainerRefs: [container(2), secret(1), container(1)],
          clientAuthentication: 'MANDATORY',
          clientCaTlsContainerRef: secret(3),
          clientCrlContainerRef: secret(4),
          hstsMaxAge: 31_536_000,
          hstsIncludeSubdomains: true,
          hstsPreload: true,
          tlsCiphers: INTERMEDIATE,
          tlsVersions: ['TLSv1.2', 'TLSv1.3'],
          alpnProtocols: ['h2', 'http/1.1', 'http/1.0'],
          insertHeaders: Object.fromEntries(
            [...SSL_HEADERS, 'X-SSL-Issuer', 'X-Forwarded-Proto', 'X-Forwarded-For'].map(name => [name, 'true']),
          ),
        }),
        aTlsListener(2, {
          clientAuthentication: 'OPTIONAL',
          clientCaTlsContainerRef: secret(3),
          hstsMaxAge: 0,
          tlsCiphers: 'ECDHE+AESGCM:AES128-SHA:!MD5',
          tlsVersions: ['TLSv1.2', 'TLSv1', 'TLSv1.1'],
          alpnProtocols: ['http/1.1'],
        }),
        aListener(3, {
          protocol: 'TERMINATED_HTTPS',
          sniContainerRefs: [secret(1), container(2), secret(1)],
          clientCaTlsContainerRef: secret(3),
          clientCrlContainerRef: secret(4),
          tlsCiphers: 'TLS_AES_256_GCM_SHA384',
          tlsVersions: ['TLSv1.3'],
          alpnProtocols: ['http/1.1', 'h2'],
          allowedCidrs: ['198.51.100.0/24'],
        }),
        aTlsListener(4, { tlsVersions: ['SSLv3', 'TLSv1.1'] }),
        aTlsListener(5, { tlsVersions: null }),
        aListener(6, { protocol: 'PROMETHEUS', defaultTlsContainerRef: container(6), tlsVersions: ['TLSv1.3'] }),
        aListener(7, { tlsCiphers: INTERMEDIATE, tlsVersions: ['TLSv1.3'], alpnProtocols: ['h2'] }),
        aTlsListener(8, { adminStateUp: false }),
      ],
      pools: [aPool(1, { members: [aMember(1)] })],
    }),
  },
  {
    name: 'tls-members',
    facts: someFacts(),
    tree: aTree({
      material: [aMaterial(secret(11), 'authority', 'e')],
      listeners: [
        aTlsListener(1, { defaultPoolId: uuid(3, 1) }),
        aListener(2, { defaultPoolId: uuid(3, 2) }),
        aListener(3, { protocol: 'TCP', defaultPoolId: uuid(3, 1) }),
        aListener(4, { protocol: 'TCP', defaultPoolId: uuid(3, 3) }),
        aListener(5, { defaultPoolId: uuid(3, 4) }),
      ],
      pools: [
        aPool(1, {
          tlsEnabled: true,
          tlsContainerRef: container(10),
          caTlsContainerRef: secret(11),
          crlContainerRef: secret(12),
          tlsCiphers: INTERMEDIATE,
          tlsVersions: ['TLSv1.2', 'TLSv1.3'],
          alpnProtocols: ['h2', 'http/1.1'],
          healthMonitor: aMonitor(1, { type: 'HTTPS', domainName: 'check.example.org', httpVersion: 1.1 }),
          members: [aMember(1), aMember(2, { name: 'Web-2.example.org', monitorPort: 8443 })],
        }),
        aPool(2, {
          protocol: 'PROXYV2',
          tlsEnabled: true,
          alpnProtocols: ['http/1.1'],
          healthMonitor: aMonitor(2),
          members: [aMember(3, { name: 'a member; of mine' }), aMember(4, { name: 'web-4.example.org' })],
        }),
        aPool(3, {
          protocol: 'TCP',
          tlsEnabled: true,
          caTlsContainerRef: secret(11),
          tlsVersions: ['TLSv1.1', 'TLSv1.2'],
          healthMonitor: aMonitor(3, { type: 'TCP' }),
          members: [aMember(5), aMember(6, { name: 'web-6.example.org' })],
        }),
        // Nothing of this is used without TLS.
        aPool(4, {
          tlsContainerRef: container(10),
          caTlsContainerRef: secret(11),
          tlsVersions: ['TLSv1.3'],
          alpnProtocols: ['h2'],
          healthMonitor: aMonitor(4, { type: 'TLS-HELLO' }),
          members: [aMember(7, { name: 'web-7.example.org' })],
        }),
        // No listener uses it.
        aPool(5, { tlsEnabled: true, caTlsContainerRef: secret(13) }),
      ],
    }),
  },
  {
    name: 'pair-tls',
    facts: someFacts({
      pair: { priority: 100, vrrpAddress: '203.0.113.21', peers: [{ amphoraId: uuid(6, 2), address: '203.0.113.22' }] },
    }),
    tree: aTree({
      topology: 'ACTIVE_STANDBY',
      listeners: [
        aTlsListener(1, { tlsCiphers: INTERMEDIATE, allowedCidrs: ['198.51.100.0/24'] }),
        aListener(2, { protocol: 'PROMETHEUS', sniContainerRefs: [secret(2)] }),
        aListener(3),
      ],
    }),
  },
  {
    name: 'l7-certificates',
    facts: someFacts(),
    tree: aTree({
      listeners: [
        aTlsListener(1, {
          clientAuthentication: 'OPTIONAL',
          clientCaTlsContainerRef: secret(3),
          l7Policies: [
            aPolicy(1, {
              rules: [
                aRule(11, { type: 'SSL_CONN_HAS_CERT', compareType: 'EQUAL_TO', value: 'True', invert: true }),
                aRule(12, { type: 'SSL_VERIFY_RESULT', compareType: 'EQUAL_TO', value: '010' }),
              ],
            }),
            aPolicy(2, {
              action: 'REDIRECT_TO_POOL',
              redirectPoolId: uuid(3, 1),
              rules: [
                aRule(21, { type: 'SSL_DN_FIELD', compareType: 'REGEX', key: 'OU', value: '.*it.*ops.*' }),
                aRule(22, { type: 'SSL_DN_FIELD', compareType: 'EQUAL_TO', key: 'CN', value: `Zoë's "x", #1` }),
              ],
            }),
          ],
        }),
        // A listener without TLS knows no certificate, so nothing matches.
        aListener(2, {
          l7Policies: [aPolicy(3, { rules: [aRule(31, { type: 'SSL_CONN_HAS_CERT', compareType: 'EQUAL_TO', value: 'true' })] })],
        }),
      ],
      pools: [aPool(1, { members: [aMember(1)] })],
    }),
  },
]
