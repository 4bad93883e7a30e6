import 'reflect-metadata'
import { X509Certificate } from 'node:crypto'
import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { projectConstraints } from '../../../controller/key-manager/certificate-authorities/internal/name-constraints.js'
import { randomSerial, readCaCertificate } from '../../../x509/certificate.js'
import { readCertificateRequest, writeCertificateRequest } from '../../../x509/certificate-request.js'
import { formatDistinguishedName, parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import type { GeneralName } from '../../../x509/encoding/general-names.js'
import { encodePem } from '../../../x509/encoding/pem.js'
import { writeRevocationList } from '../../../x509/revocation-list.js'
import { authority, DAY, fileOf, issue, KINDS, keyOf, NAMES, openssl, SUBJECT } from '../../support/inputs/x509.js'

/** OpenSSL accepts the X.509 that we write, and we read what OpenSSL writes. */

const p256 = keyOf('P-256')

const policyOf = (settings: object) =>
  configurationSchema.parse({ key_manager: { certificate_authority: settings } }).key_manager.certificate_authority
const dns = (value: string): GeneralName => ({ kind: 'dns', value })

for (const caKind of KINDS) {
  t.test(`certificates for every kind of key verify under a ${caKind} CA`, async t => {
    const root = authority('CN=Root,O=Test', keyOf(caKind), 1, null)
    const below = authority('CN=Below,O=Test', p256, 0, root)
    for (const kind of KINDS) {
      const key = keyOf(kind)
      const request = writeCertificateRequest(parseDistinguishedName(SUBJECT), key, NAMES)
      const leaf = issue(request, root)
      const verified = openssl(['verify', '-x509_strict', '-CAfile', fileOf(root.pem), fileOf(leaf)])
      t.match(verified, { status: 0, text: ': OK' }, `${kind}: ${verified.text}`)
      const certificate = new X509Certificate(leaf)
      t.ok(certificate.verify(new X509Certificate(root.pem).publicKey), kind)
      t.ok(certificate.checkIssued(new X509Certificate(root.pem)), kind)
      t.ok(certificate.checkPrivateKey(key), kind)
    }
    const leaf = issue(writeCertificateRequest(parseDistinguishedName(SUBJECT), p256, []), below)
    const chain = ['verify', '-x509_strict', '-CAfile', fileOf(root.pem), '-untrusted', fileOf(below.pem)]
    t.match(openssl([...chain, fileOf(leaf)]), { status: 0 })
    const tooDeep = authority('CN=Too deep', p256, 0, below)
    const deepLeaf = issue(writeCertificateRequest(parseDistinguishedName(SUBJECT), p256, []), tooDeep)
    const deepChain = ['verify', '-CAfile', fileOf(root.pem), '-untrusted', fileOf(below.pem + tooDeep.pem)]
    t.match(openssl([...deepChain, fileOf(deepLeaf)]), { status: 2, text: /path length constraint exceeded/ })
  })
}

t.test('OpenSSL enforces our name constraints', async t => {
  const policy = policyOf({ project_names: ['a=shop.example', 'b=other.example'] })
  const root = authority('CN=Root', p256, 2, null)
  const certified = (project: string, ...names: GeneralName[]) => {
    const below = authority(`CN=Project ${project}`, keyOf('P-384'), 0, root, [projectConstraints(policy, project)])
    const leaf = issue(writeCertificateRequest(parseDistinguishedName('O=x'), p256, names), below)
    return openssl([
      'verify',
      '-x509_strict',
      '-CAfile',
      fileOf(root.pem),
      '-untrusted',
      fileOf(below.pem),
      fileOf(leaf),
    ])
  }
  t.match(certified('a', dns('www.shop.example'), dns('*.shop.example')), { status: 0 })
  t.match(certified('a', dns('www.free.example')), { status: 2, text: /permitted subtree violation/ })
  t.match(certified('a', { kind: 'ip', value: '203.0.113.7' }), { status: 2, text: /excluded subtree violation/ })
  t.match(certified('c', dns('www.free.example')), { status: 0 })
  for (const name of ['localhost', 'www.shop.example']) {
    t.match(certified('c', dns(name)), { status: 2, text: /excluded subtree violation/ }, name)
  }
  t.match(certified('c', { kind: 'ip', value: '127.0.0.1' }), { status: 2, text: /excluded subtree violation/ })
  t.match(certified('c', { kind: 'ip', value: '::1' }), { status: 2, text: /excluded subtree violation/ })
  t.match(certified('c', { kind: 'ip', value: '203.0.113.7' }), { status: 0 })
})

t.test('a project keeps its own names below another project’s name', async t => {
  const policy = policyOf({
    project_names: ['a=firm.example', 'b=dev.firm.example', 'a=10.0.0.0/8', 'b=10.1.0.0/16'],
    permitted_names: 'dev.localhost',
  })
  const root = authority('CN=Root', p256, 2, null)
  const certified = (project: string, name: GeneralName) => {
    const below = authority(`CN=Project ${project}`, keyOf('P-384'), 0, root, [projectConstraints(policy, project)])
    const leaf = issue(writeCertificateRequest(parseDistinguishedName('O=x'), p256, [name]), below)
    const files = ['-CAfile', fileOf(root.pem), '-untrusted', fileOf(below.pem), fileOf(leaf)]
    return openssl(['verify', '-x509_strict', ...files])
  }
  t.match(certified('b', dns('www.dev.firm.example')), { status: 0 })
  t.match(certified('b', { kind: 'ip', value: '10.1.0.1' }), { status: 0 })
  t.match(certified('b', dns('www.firm.example')), { status: 2, text: /permitted subtree violation/ })
  t.match(certified('a', dns('www.firm.example')), { status: 0 })
  t.match(certified('a', dns('www.dev.firm.example')), { status: 2, text: /excluded subtree violation/ })
  t.match(certified('a', { kind: 'ip', value: '10.1.0.1' }), { status: 2, text: /excluded subtree violation/ })
  t.match(certified('c', dns('dev.localhost')), { status: 0 })
})

t.test('our reader accepts requests that OpenSSL writes', async t => {
  for (const [args, kind] of [
    [['-newkey', 'rsa:2048'], 'rsa'],
    [['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-384', '-sha512'], 'ec'],
  ] as const) {
    const made = openssl([
      ...['req', '-new', '-nodes', '-keyout', '/dev/null', '-utf8', '-subj', '/C=DE/O=Käse, Brot/CN=a.example'],
      ...['-addext', 'subjectAltName=DNS:a.example,IP:198.51.100.9', '-addext', 'basicConstraints=critical,CA:TRUE'],
      ...args,
    ])
    const pem = made.text.slice(made.text.indexOf('-----BEGIN CERT'))
    const request = readCertificateRequest(Buffer.from(pem))
    t.equal(formatDistinguishedName(request.subject), 'CN=a.example,O=Käse\\, Brot,C=DE')
    t.same(request.alternativeNames, [
      { kind: 'dns', value: 'a.example' },
      { kind: 'ip', value: '198.51.100.9' },
    ])
    t.equal(request.publicKey.key.asymmetricKeyType, kind)
    const root = authority('CN=Root', p256, 1, null)
    t.match(
      openssl(['x509', '-noout', '-text'], issue(Buffer.from(pem), root)).text,
      'CA:FALSE',
      'a request cannot ask to be a CA',
    )
  }
})

t.test('OpenSSL verifies requests that we write', async t => {
  for (const kind of KINDS) {
    const key = keyOf(kind)
    const pem = encodePem('CERTIFICATE REQUEST', writeCertificateRequest(parseDistinguishedName(SUBJECT), key, NAMES))
    t.match(openssl(['req', '-noout', '-verify'], pem), { status: 0, text: /verify OK/ }, kind)
  }
})

t.test('OpenSSL verifies our CRLs and finds revoked certificates in them', async t => {
  for (const kind of KINDS) {
    const key = keyOf(kind)
    const root = authority('CN=Root,O=Test', key, 1, null)
    const own = readCaCertificate(root.pem)
    const serial = randomSerial()
    const revokedLeaf = issue(writeCertificateRequest(parseDistinguishedName(SUBJECT), p256, []), root, serial)
    const goodLeaf = issue(writeCertificateRequest(parseDistinguishedName(SUBJECT), p256, []), root)
    const list = (revoked: Buffer[]) =>
      encodePem(
        'X509 CRL',
        writeRevocationList(
          {
            issuer: own.subject,
            issuerKeyIdentifier: own.keyIdentifier,
            number: 300,
            thisUpdate: new Date(Date.now() - 60_000),
            nextUpdate: new Date(Date.now() + DAY),
            revoked: revoked.map(each => ({ serial: each, at: new Date(), reason: 'keyCompromise' as const })),
          },
          key,
        ),
      )
    const crl = list([serial])
    const shown = openssl(['crl', '-noout', '-text', '-CAfile', fileOf(root.pem)], crl)
    t.match(shown, { status: 0, text: /verify OK/ }, kind)
    t.match(shown.text, /CRL Number: \s+300/)
    t.match(shown.text, /Reason Code: \s+Key Compromise/)
    const check = ['verify', '-crl_check', '-CAfile', fileOf(root.pem), '-CRLfile', fileOf(crl)]
    t.match(openssl([...check, fileOf(revokedLeaf)]), { status: 2, text: /certificate revoked/ }, kind)
    t.match(openssl([...check, fileOf(goodLeaf)]), { status: 0 }, kind)
    t.match(openssl(['crl', '-noout', '-text', '-CAfile', fileOf(root.pem)], list([])).text, /No Revoked Certificates/)
  }
})
