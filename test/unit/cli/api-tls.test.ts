import { X509Certificate } from 'node:crypto'
import { readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parse } from 'yaml'
import {
  type AuthorityFiles,
  ensureApiAuthority,
  issueServerCertificate,
  loadApiAuthority,
} from '../../../controller/cli/api-tls/authority.js'
import { certificateFromAuthority } from '../../../controller/cli/api-tls/from-authority.js'
import { certificateFromFiles } from '../../../controller/cli/api-tls/from-files.js'
import { certificateFromReference } from '../../../controller/cli/api-tls/from-reference.js'
import { keepCertificate } from '../../../controller/cli/api-tls/keep.js'
import { serverNames, thisMachine } from '../../../controller/cli/api-tls/names.js'
import type { CertificateOrigin } from '../../../controller/cli/api-tls/origin.js'
import { requireProtectedApis } from '../../../controller/cli/api-tls/plain-http.js'
import {
  clientAuthorityFile,
  trustedAuthorities,
  writeClientAuthorities,
} from '../../../controller/cli/api-tls/trust.js'
import { certificateFindings } from '../../../controller/cli/commands/doctor/certificate-findings.js'
import { findCredentials, securityOf } from '../../../controller/cli/credentials.js'
import { writeClientFiles } from '../../../controller/cli/first-start/client-files.js'
import { listenersOf } from '../../../controller/cli/host/checks.js'
import { keyFiles } from '../../../controller/cli/state-directory/keys.js'
import { serviceUrls } from '../../../controller/cli/wiring/service-urls.js'
import { parseConfiguration } from '../../../controller/config/load.js'
import { namesHost, type ServerCertificate } from '../../../controller/http/tls/server-certificate.js'
import { ConfigurationError } from '../../../controller/options/configuration-error.js'
import { recordLog } from '../../support/recorded-log.js'

const DAY = 86_400_000
const INTERNAL = parseConfiguration('api: {tls: {internal_ca: true}}', {})
const MACHINE = { name: 'node-1', addresses: ['10.0.0.5', '2001:db8::5'] }

const filesIn = (directory: string): AuthorityFiles => ({
  key: join(directory, 'keys/api-ca'),
  certificate: join(directory, 'api-ca.pem'),
})

/** A new CA of the APIs, in files. */
function madeAuthority(t: Test) {
  const directory = t.testdir({})
  const files = filesIn(directory)
  ensureApiAuthority(files)
  return { directory, files, authority: loadApiAuthority(files) }
}

/** A certificate of that CA. */
function issued(t: Test, name: string, now = new Date()): ServerCertificate {
  return issueServerCertificate(madeAuthority(t).authority, [{ kind: 'dns', value: name }], now)
}

const nameOf = ({ leaf }: ServerCertificate): string => leaf.subject.replace('CN=', '')

t.test('settings that contradict each other or lack a part are refused with the name of the other', async t => {
  const cert = 'certificate_file: /c, key_file: /k'
  const ref = 'reference: https://k/v1/secrets/01234567-89ab-cdef-0123-456789abcdef'
  for (const [tls, message] of [
    ['certificate_file: /c', 'api.tls.key_file is not set: it must be the PEM file with the key.'],
    ['key_file: /k', /api\.tls\.certificate_file is not set/],
    ['certificate_file: c, key_file: /k', /api\.tls\.certificate_file: "c" .* it must be an absolute path/],
    [
      `internal_ca: true, ${cert}`,
      /api\.tls\.certificate_file: "\/c" .* left out, since api\.tls\.internal_ca already/,
    ],
    [`${cert}, ${ref}`, /api\.tls\.reference: .* left out, since api\.tls\.certificate_file already/],
    ['reference: nonsense', /api\.tls\.reference: "nonsense" .* the reference of a secret or container/],
    ['minimum_version: TLSv1.1', /api\.tls\.minimum_version: "TLSv1\.1" .* TLSv1\.2 or TLSv1\.3/],
    ['internal_ca: true, names: ["a b"]', /api\.tls\.names: "a b" in .* a host name or an address/],
  ] as const) {
    t.throws(() => parseConfiguration(`api: {tls: {${tls}}}`, {}), { message, constructor: ConfigurationError }, tls)
  }
  for (const tls of [cert, ref, `${ref}, ca_file: /ca`, 'internal_ca: yes, names: [a.example, 10.0.0.1]']) {
    t.type(parseConfiguration(`api: {tls: {${tls}}}`, {}), 'object', tls)
  }
  const urls = Object.values(serviceUrls(INTERNAL))
  t.same(
    urls.filter(url => !url.startsWith('https://127.0.0.1:')),
    [],
    'with TLS, every URL begins with https',
  )
})

t.test('plain HTTP beyond loopback is refused, unless the operator allows it or there is TLS', async t => {
  const check = async (text: string) => {
    const config = parseConfiguration(text, {})
    await requireProtectedApis(config, listenersOf(config, null))
  }
  for (const host of ['127.0.0.1', '127.9.9.9', '::1', 'localhost', 'no-such-host.invalid']) {
    await t.resolves(check(`identity: {host: "${host}"}`), host)
  }
  for (const host of ['0.0.0.0', '::', '10.0.0.1', '2001:db8::1', '::ffff:10.0.0.1']) {
    const message = new RegExp(
      `^identity\\.host is ${host}: there, the identity API would send .* in clear\\. Serve HTTPS: `,
    )
    await t.rejects(check(`identity: {host: "${host}"}`), { message, constructor: ConfigurationError }, host)
    await t.resolves(check(`identity: {host: "${host}"}\napi: {allow_http: true}`), `${host}, allowed`)
    await t.resolves(check(`identity: {host: "${host}"}\napi: {tls: {internal_ca: true}}`), `${host}, with TLS`)
  }
  await t.rejects(
    check('network: {host: 10.0.0.1}\nkey_manager: {host: 10.0.0.2}'),
    /^network\.host is 10\.0\.0\.1, key_manager\.host is 10\.0\.0\.2: there, the network API, the key manager API would/,
    'one sentence for all',
  )
})

t.test(
  'a certificate names where the APIs listen, their public URLs, further names, and with a wildcard all of the machine',
  async t => {
    const namesFor = (text: string) => serverNames(parseConfiguration(text, {}), MACHINE).map(({ value }) => value)
    t.same(namesFor(''), ['127.0.0.1', 'localhost', '::1'])
    t.same(
      namesFor(
        'identity: {host: 10.0.0.9, public_url: "https://ID.example:5000/v3"}\napi: {tls: {names: [x.example, 10.9.9.9]}}',
      ),
      ['x.example', '10.9.9.9', 'id.example', '10.0.0.9', '127.0.0.1', 'localhost', '::1'],
    )
    t.same(namesFor('network: {host: "::", public_url: "https://[2001:db8::7]/"}').slice(-3), [
      'node-1',
      '10.0.0.5',
      '2001:db8::5',
    ])
    t.match(namesFor('network: {host: "::", public_url: "https://[2001:db8::7]/"}'), ['2001:db8::7'])
    t.equal(
      serverNames(parseConfiguration('network: {host: 0.0.0.0}', {}), {
        name: 'a_b',
        addresses: Array.from({ length: 999 }, (_, at) => `10.0.${at >> 8}.${at & 255}`),
      }).length,
      64,
    )
    const card = (address: string, internal = false) => ({
      address,
      internal,
      netmask: '',
      mac: '',
      cidr: null,
      family: 'IPv4' as const,
    })
    t.same(thisMachine({ lo: [card('127.0.0.1', true)], eth0: [card('10.0.0.5'), card('fe80::1')] }).addresses, [
      '10.0.0.5',
    ])
  },
)

t.test('the CA and its certificates are made once, valid for clients, and readable as they should be', async t => {
  const { files, authority } = madeAuthority(t)
  const first = readFileSync(files.certificate, 'utf8')
  t.equal(statSync(files.key).mode & 0o777, 0o600)
  t.equal(statSync(files.certificate).mode & 0o777, 0o644)
  ensureApiAuthority(files)
  t.equal(readFileSync(files.certificate, 'utf8'), first)
  const ca = new X509Certificate(first)
  t.ok(ca.ca && ca.verify(ca.publicKey))
  const { leaf } = issueServerCertificate(authority, serverNames(INTERNAL, MACHINE), new Date())
  t.ok(leaf.checkIssued(ca) && leaf.verify(ca.publicKey) && !leaf.ca)
  rmSync(files.certificate)
  ensureApiAuthority(files)
  const again = new X509Certificate(readFileSync(files.certificate))
  t.ok(leaf.checkIssued(again) && leaf.verify(again.publicKey), 'a start that died before it wrote the certificate')
  t.same(
    ['127.0.0.1', 'localhost', '::1', '10.0.0.5'].map(host => namesHost(leaf, host)),
    [true, true, true, false],
  )
})

t.test('a lost key of the CA is asked back, not replaced', async t => {
  const { files } = madeAuthority(t)
  rmSync(files.key)
  t.throws(() => ensureApiAuthority(files), /The key \S+api-ca of the CA \S+api-ca\.pem is missing\. Copy it back/)
  t.throws(() => loadApiAuthority(files), /cannot be read \(ENOENT\)/)
  rmSync(files.certificate)
  ensureApiAuthority(files)
  t.ok(loadApiAuthority(files), 'without both, there is a new CA')
})

t.test(
  'over 30 years, clients with the CA’s file of some year always trust what is presented until that file ends',
  async t => {
    const { files } = madeAuthority(t)
    let now = Date.now()
    const origin = certificateFromAuthority(files, INTERNAL, { now: () => new Date(now), machine: () => MACHINE })
    let current = origin.first
    let [issues, authorities] = [0, 0]
    const held = [new X509Certificate(readFileSync(files.certificate))]
    for (let day = 0; day < 30 * 365; day += 4) {
      now += 4 * DAY
      const newer = await origin.newer()
      current = newer ?? current
      const left = Date.parse(current.leaf.validTo) - now
      if (left < 6 * DAY) t.fail(`${left / DAY} days left on day ${day}`)
      if (newer === null) continue
      issues++
      const latest = new X509Certificate(readFileSync(files.certificate))
      if (latest.serialNumber !== held.at(-1)?.serialNumber) {
        authorities++
        held.push(latest)
      }
      for (const ca of held.filter(one => Date.parse(one.validTo) > now)) {
        if (!newer.leaf.checkIssued(ca) || !newer.leaf.verify(ca.publicKey)) t.fail(`distrusted on day ${day}`)
      }
    }
    t.ok(issues > 500 && issues < 600, `${issues} certificates`)
    t.equal(authorities, 4)
  },
)

t.test('a certificate of the own CA is replaced when the machine’s names change, and not before', async t => {
  const { files } = madeAuthority(t)
  let addresses = ['10.0.0.5']
  const config = parseConfiguration('api: {tls: {internal_ca: true}}\nnetwork: {host: 0.0.0.0}', {})
  const origin = certificateFromAuthority(files, config, { machine: () => ({ name: 'n', addresses }) })
  t.equal(await origin.newer(), null)
  addresses = ['10.0.0.5', '10.0.0.6']
  const newer = await origin.newer()
  t.ok(newer !== null && namesHost(newer.leaf, '10.0.0.6'))
  t.equal(await origin.newer(), null)
})

t.test('changed files count once they have stayed the same; symbolic links may be exchanged', async t => {
  const [first, second] = [issued(t, 'first'), issued(t, 'second')]
  const directory = t.testdir({ one: { cert: first.certificate, key: first.key }, two: { cert: '', key: '' } })
  symlinkSync('one', join(directory, 'live'))
  const [cert, key] = ['cert', 'key'].map(name => join(directory, 'live', name)) as [string, string]
  const origin = await certificateFromFiles(cert, key)
  t.equal(nameOf(origin.first), 'first')
  t.equal(await origin.newer(), null)

  writeFileSync(join(directory, 'two/cert'), second.certificate)
  symlinkSync('two', join(directory, 'next'))
  renameSync(join(directory, 'next'), join(directory, 'live'))
  t.equal(await origin.newer(), null, 'it may still be written')
  await t.rejects(origin.newer(), { message: 'there is no private key in PEM' })
  writeFileSync(join(directory, 'two/key'), first.key)
  t.equal(await origin.newer(), null)
  await t.rejects(origin.newer(), { message: 'the key is not that of the certificate' })
  await t.rejects(origin.newer(), { message: 'the key is not that of the certificate' }, 'until it is corrected')
  rmSync(join(directory, 'two/key'))
  await origin.newer()
  await t.rejects(origin.newer(), { message: /key cannot be read \(ENOENT\)$/ })
  writeFileSync(join(directory, 'two/key'), second.key)
  t.equal(await origin.newer(), null)
  const newer = await origin.newer()
  t.equal(newer === null ? '' : nameOf(newer), 'second')
  t.equal(await origin.newer(), null)
  await t.rejects(certificateFromFiles(cert, join(directory, 'nowhere')), {
    message:
      /^api\.tls\.certificate_file \(\S+\) and api\.tls\.key_file \(\S+\) cannot be used: \S+nowhere cannot be read \(ENOENT\)\./,
    constructor: ConfigurationError,
  })
})

t.test(
  'until the reference can be read, the APIs present their own CA’s certificates, ever less often asking again',
  async t => {
    const beginning: CertificateOrigin = {
      ...{ what: 'own', first: issued(t, 'own'), intervalSeconds: 60, expires: false },
      newer: async () => renewed.shift() ?? null,
    }
    const renewed = [null, issued(t, 'own again')]
    const stored = issued(t, 'stored')
    const answers: (() => { certificate: string; key: string } | null)[] = []
    const origin = certificateFromReference('REF', beginning, async () => answers.shift()?.() ?? null)
    const fails = () => {
      throw new Error('away')
    }
    answers.push(
      fails,
      fails,
      fails,
      () => stored,
      () => null,
      fails,
      () => ({ certificate: stored.certificate, key: 'x' }),
    )
    t.equal(nameOf(origin.first), 'own')
    await t.rejects(origin.newer(), { message: 'away' })
    t.equal(origin.intervalSeconds, 2)
    t.equal(nameOf((await origin.newer())!), 'own again', 'they are renewed meanwhile')
    await t.rejects(origin.newer(), { message: 'away' })
    t.match(origin, { intervalSeconds: 8, expires: false })
    t.equal(nameOf((await origin.newer())!), 'stored')
    t.match(origin, { intervalSeconds: 30, expires: true })
    t.equal(await origin.newer(), null)
    await t.rejects(origin.newer(), { message: 'away' }, 'the former stays')
    await t.rejects(origin.newer(), { message: /no private key/ })
  },
)

t.test('a new certificate is presented; what is wrong is logged once, and an end that comes near each day', async t => {
  const { log, lines, line } = recordLog()
  const soon = issued(t, 'soon', new Date(Date.now() - 25 * DAY))
  const later = issued(t, 'later')
  const script: (() => ServerCertificate | null)[] = []
  const broken = (reason: string) => () => {
    throw new Error(reason)
  }
  script.push(broken('one'), broken('one'), broken('two'), () => later)
  const presented: string[] = []
  const origin: CertificateOrigin = {
    ...{ what: 'F', first: soon, intervalSeconds: 0.001, expires: true },
    newer: async () => script.shift()?.() ?? null,
  }
  const stop = keepCertificate(origin, certificate => presented.push(nameOf(certificate)), log)
  await line('The APIs present a new certificate from F')
  await stop()
  t.same(presented, ['later'])
  t.match(
    lines.map(({ msg }) => msg),
    [
      /^The certificate of the APIs, from F, expires at \d{4}-.*Z\. Renew it$/,
      /^No new certificate from F: one\. The APIs keep the former, valid until /,
      /^No new certificate from F: two\./,
      'The APIs present a new certificate from F',
    ],
  )
})

t.test('the doctor says what is wrong with a certificate that an API presents', async t => {
  const { tls } = INTERNAL.api
  const endpoint = { name: 'network API', setting: 'network', url: 'https://127.0.0.1:9696', publicUrl: undefined }
  const { authority } = madeAuthority(t)
  const { leaf } = issueServerCertificate(authority, serverNames(INTERNAL, MACHINE), new Date())
  const presented = { leaf, distrust: null, isOwn: true }
  const after = (days: number) => new Date(Date.now() + days * DAY)
  t.match(certificateFindings(endpoint, presented, tls, after(0)), [
    { state: 'ok', text: /^127\.0\.0\.1, valid until / },
  ])
  t.match(certificateFindings(endpoint, presented, tls, after(24)), [
    { state: 'fault', text: /certificate expires on / },
  ])
  t.match(certificateFindings(endpoint, presented, tls, after(31)), [
    { state: 'fault', text: /certificate expired on / },
  ])
  t.match(certificateFindings(endpoint, { ...presented, distrust: 'SELF_SIGNED' }, tls, after(0)), [
    { state: 'fault', text: /refuse its certificate: SELF_SIGNED$/ },
  ])
  t.match(certificateFindings({ ...endpoint, url: 'https://10.0.0.7:9696' }, presented, tls, after(0)), [
    { state: 'fault', text: /does not name 10\.0\.0\.7, where clients/, remedy: /set network\.public_url$/ },
  ])
  t.match(certificateFindings({ ...endpoint, publicUrl: 'https://lb.example/n' }, presented, tls, after(0)), [
    { state: 'note', text: /does not name lb\.example \(network\.public_url\): right only behind a proxy/ },
  ])
  t.match(certificateFindings(endpoint, presented, { ...tls, internal_ca: false, reference: 'REF' }, after(0)), [
    { state: 'fault', text: /not that of api\.tls\.reference$/ },
  ])
})

t.test('clients get the file of the CA, and Krater’s own trust the public CAs too', async t => {
  const { directory, authority } = madeAuthority(t)
  const own = { directory, config: INTERNAL }
  const plain = { directory, config: parseConfiguration('', {}) }
  const ca = join(directory, 'api-ca.pem')
  t.equal(clientAuthorityFile(own), ca)
  t.equal(clientAuthorityFile(plain), null)
  t.equal(trustedAuthorities(plain), undefined)
  t.ok((trustedAuthorities(own)?.match(/BEGIN/g)?.length ?? 0) > 50)
  t.match(trustedAuthorities(own), authority.certificate)
  t.equal(keyFiles(INTERNAL, directory).apiAuthority, join(directory, 'keys/api-ca'))
  t.equal(keyFiles(plain.config, directory).apiAuthority, null)

  const { key: otherKey, certificate: other } = filesIn(join(directory, 'other'))
  ensureApiAuthority({ key: otherKey, certificate: other })
  const withOther = (tls: string) => ({
    directory,
    config: parseConfiguration(`api: {tls: {${tls}ca_file: "${other}"}}`, {}),
  })
  t.equal(clientAuthorityFile(withOther('')), other, 'of a proxy with TLS')
  t.match(trustedAuthorities(withOther('')), readFileSync(other, 'utf8').trim())
  const both = withOther('internal_ca: true, ')
  writeClientAuthorities(both)
  const bundle = clientAuthorityFile(both) ?? ''
  for (const file of [ca, other]) t.match(readFileSync(bundle, 'utf8'), readFileSync(file, 'utf8').trim())

  const who = { username: 'u', password: 'p', projectName: 'p' }
  const files = { authUrl: 'https://h:5000/v3', region: 'R', demo: who, admin: who }
  writeClientFiles(directory, { ...files, caFile: ca })
  const openrc = readFileSync(join(directory, 'openrc'), 'utf8')
  t.match(openrc, `export OS_CACERT='${ca}'`)
  t.match(parse(readFileSync(join(directory, 'clouds.yaml'), 'utf8')).clouds, {
    krater: { cacert: ca },
    'krater-admin': { cacert: ca },
  })
  t.match(findCredentials(directory, {}), {
    credentials: { auth_url: files.authUrl },
    security: { insecure: false, ca: authority.certificate },
  })
  const variables = { OS_AUTH_URL: files.authUrl, OS_USERNAME: 'u', OS_CACERT: ca }
  t.match(findCredentials(directory, variables), { security: { ca: authority.certificate } })
  t.same(findCredentials(directory, { OS_AUTH_URL: files.authUrl }).security, { insecure: false })
  t.same(securityOf({ verify: false }), { insecure: true })
  t.throws(
    () => securityOf({ cacert: join(directory, 'nowhere') }),
    /nowhere \(cacert in clouds\.yaml, or OS_CACERT\) cannot be read/,
  )

  writeClientFiles(directory, { ...files, caFile: null })
  const without = readFileSync(join(directory, 'openrc'), 'utf8')
  t.match(without, /^unset .*OS_CACERT$/m, 'the file of another cloud does not stay')
  t.notMatch(without, 'export OS_CACERT')
  t.notMatch(readFileSync(join(directory, 'clouds.yaml'), 'utf8'), 'cacert')
})
