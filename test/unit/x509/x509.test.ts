import 'reflect-metadata'
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { X509Certificate as OracleCertificate, Pkcs10CertificateRequest } from '@peculiar/x509'
import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { namePolicyRefusal } from '../../../controller/key-manager/certificate-authorities/internal/name-policy.js'
import {
  parseSerialText,
  randomSerial,
  readCaCertificate,
  serialText,
  writeCertificate,
} from '../../../x509/certificate.js'
import { writeCertificateRequest } from '../../../x509/certificate-request.js'
import { readDer, writeDer } from '../../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { decodeGeneralNames, encodeGeneralNames, type GeneralName } from '../../../x509/encoding/general-names.js'
import { encodeName } from '../../../x509/encoding/name-encoding.js'
import { decodePem } from '../../../x509/encoding/pem.js'
import { writeCertificateBag } from '../../../x509/pkcs7.js'
import { publicKeyOf } from '../../../x509/public-key.js'
import { authority, issue, keyOf, NAMES, openssl, SUBJECT } from '../../support/inputs/x509.js'

const p256 = keyOf('P-256')

t.test('a certificate has the extensions that its key and purpose require', async t => {
  const root = authority('CN=Root,O=Test', keyOf('P-384'), 1, null)
  const serial = randomSerial()
  const leaf = issue(writeCertificateRequest(parseDistinguishedName(SUBJECT), p256, NAMES), root, serial)
  const { text: shown } = openssl(['x509', '-noout', '-text', '-nameopt', 'RFC2253,utf8,-esc_msb'], leaf)
  t.match(shown, 'Subject: CN=www.example.com,O=Müller & Söhne\\, Köln,C=DE')
  t.match(shown, /Basic Constraints: critical\s+CA:FALSE/)
  t.match(shown, /Key Usage: critical\s+Digital Signature\n/)
  t.match(shown, /Extended Key Usage: \s+TLS Web Server Authentication, TLS Web Client Authentication/)
  t.match(
    shown,
    /DNS:www.example.com, DNS:\*.example.com, IP Address:192.0.2.7, IP Address:2001:DB8:0:0:0:0:0:7, email:web@example.com, URI:https:\/\/example.com\/a\?b=c/,
  )
  t.match(shown, 'URI:http://ca.test/crl/2.crl')
  t.equal(parseSerialText(new X509Certificate(leaf).serialNumber), serialText(serial))
  const rsaLeaf = issue(writeCertificateRequest([], keyOf('RSA 2048'), NAMES), root)
  const rsaText = openssl(['x509', '-noout', '-text'], rsaLeaf).text
  t.match(rsaText, /Key Usage: critical\s+Digital Signature, Key Encipherment\n/)
  t.match(rsaText, /Subject Alternative Name: critical/, 'critical, because it is the only name')
  const rootText = openssl(['x509', '-noout', '-text'], root.pem).text
  t.match(rootText, /Basic Constraints: critical\s+CA:TRUE, pathlen:1/)
  t.match(rootText, /Key Usage: critical\s+Certificate Sign, CRL Sign\n/)
  t.notMatch(rootText, 'CRL Distribution')
})

const policyOf = (settings: object) =>
  configurationSchema.parse({ key_manager: { certificate_authority: settings } }).key_manager.certificate_authority
const dns = (value: string): GeneralName => ({ kind: 'dns', value })

t.test('reserved names and other projects’ names are refused', async t => {
  const policy = policyOf({
    reserved_names: 'payroll.example,192.0.2.0/24',
    permitted_names: 'dev.localhost',
    project_names: ['a=shop.example', 'a=198.51.100.0/24', 'b=other.example'],
  })
  const refusal = (project: string, ...alternativeNames: GeneralName[]) =>
    namePolicyRefusal(policy, project, { subject: [], alternativeNames })
  const reserved: GeneralName[] = [
    ...['localhost', 'a.localhost', '*.localhost', 'LOCALHOST', '*.com', '*.co.uk', '*.github.io', '*.internal'].map(
      dns,
    ),
    ...['x.payroll.example', '*.payroll.example', '*.example'].map(dns),
    ...['127.0.0.1', '127.9.9.9', '::1', '::ffff:127.0.0.1', '0.0.0.0', '::', '224.0.0.1', '192.0.2.9'].map(
      (value): GeneralName => ({ kind: 'ip', value }),
    ),
    { kind: 'uri', value: 'https://localhost:8443/' },
    { kind: 'uri', value: 'https://[::1]/' },
    { kind: 'email', value: 'root@localhost' },
  ]
  for (const name of reserved) t.type(refusal('c', name), 'string', name.value)
  const free = ['www.free.example', '*.free.example', 'web1', 'com.free.example', 'dev.localhost', 'a.dev.localhost']
  for (const name of free) t.equal(refusal('c', dns(name)), null, name)
  t.equal(refusal('c', { kind: 'ip', value: '203.0.113.7' }), null)
  const subject = parseDistinguishedName('CN=localhost')
  t.match(namePolicyRefusal(policy, 'c', { subject, alternativeNames: [] }), /localhost is reserved/)
  t.equal(
    namePolicyRefusal(policy, 'c', { subject: parseDistinguishedName('CN=A person'), alternativeNames: [] }),
    null,
  )
  const named = (dn: string) =>
    namePolicyRefusal(policy, 'c', { subject: parseDistinguishedName(dn), alternativeNames: [] })
  for (const dn of ['CN=my_web.shop.example', 'CN=WWW.shop.example.', 'emailAddress=web@shop.example,CN=A person']) {
    t.match(named(dn), /belongs to another project/, dn)
  }
  t.match(named('CN=w*.shop.example'), /a wildcard must be the whole first label/, 'OpenSSL matches it with www')
  for (const value of [
    'https://www.shop.example./',
    'sip:shop.example',
    'sips:a;b=c@shop.example:5061;transport=tcp',
  ]) {
    t.match(refusal('c', { kind: 'uri', value }), /belongs to another project/, value)
  }
  t.equal(refusal('c', { kind: 'uri', value: 'urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6' }), null)
  t.equal(refusal('a', dns('www.shop.example'), dns('*.shop.example')), null)
  t.match(refusal('c', dns('www.shop.example')), /belongs to another project/)
  t.match(refusal('b', dns('*.shop.example')), /belongs to another project/)
  t.match(refusal('c', { kind: 'ip', value: '198.51.100.7' }), /belongs to another project/)
  t.match(refusal('b', dns('www.free.example')), /not among those of the project: other.example/)
})

t.test('the longest matching entry decides which project owns a name', async t => {
  const policy = policyOf({
    project_names: ['a=firm.example', 'b=dev.firm.example', 'a=x.dev.firm.example', 'a=10.0.0.0/8', 'b=10.1.0.0/16'],
  })
  const refusal = (project: string, name: GeneralName) =>
    namePolicyRefusal(policy, project, { subject: [], alternativeNames: [name] })
  const ip = (value: string): GeneralName => ({ kind: 'ip', value })
  const ofA = [dns('firm.example'), dns('www.firm.example'), dns('x.dev.firm.example'), ip('10.0.0.1')]
  const ofB = [dns('dev.firm.example'), dns('y.dev.firm.example'), ip('10.1.0.1')]
  for (const name of ofA) {
    t.equal(refusal('a', name), null, name.value)
    t.match(refusal('b', name), /belongs to another project/, name.value)
  }
  for (const name of ofB) {
    t.equal(refusal('b', name), null, name.value)
    t.match(refusal('a', name), /belongs to another project/, name.value)
  }
  t.match(refusal('a', dns('*.firm.example')), /belongs to another project/, 'it covers dev.firm.example')
  t.match(refusal('b', dns('*.dev.firm.example')), /belongs to another project/, 'it covers x.dev.firm.example')
  t.equal(refusal('b', dns('*.y.dev.firm.example')), null)
})

t.test('another X.509 implementation verifies our requests and certificates', async t => {
  const key = keyOf('RSA 2048')
  const request = writeCertificateRequest(parseDistinguishedName(SUBJECT), key, NAMES)
  const oracle = new Pkcs10CertificateRequest(request)
  t.ok(await oracle.verify())
  t.equal(oracle.subjectName.getField('O')[0], 'Müller & Söhne, Köln')
  const root = authority('CN=Root', p256, 1, null)
  const certificate = new OracleCertificate(issue(request, root))
  const rootCertificate = new OracleCertificate(root.pem)
  t.ok(await certificate.verify({ publicKey: rootCertificate.publicKey, signatureOnly: true }))
  t.equal(certificate.issuer, rootCertificate.subject)
  t.equal(certificate.extensions.length, 7)
})

t.test('certificates carry any serial, and dates before and after 2050', async t => {
  for (const first of ['00', '7f', '80', 'ff']) {
    const serial = Buffer.from(`${first}${'11'.repeat(15)}`, 'hex')
    const publicKey = publicKeyOf(p256)
    const subject = encodeName(parseDistinguishedName('CN=x'))
    const validFor = { notBefore: new Date('2049-12-31T23:59:59Z'), notAfter: new Date('2050-01-01T00:00:00Z') }
    const der = writeCertificate({ ...validFor, serial, issuer: subject, subject, publicKey, extensions: [] }, p256)
    const { serialNumber, validFrom, validTo } = new X509Certificate(der)
    t.equal(parseSerialText(serialNumber), serialText(serial))
    t.equal(new Date(validFrom).toISOString(), '2049-12-31T23:59:59.000Z')
    t.equal(new Date(validTo).toISOString(), '2050-01-01T00:00:00.000Z')
  }
  t.equal(parseSerialText('0A:0b'), `${'0'.repeat(29)}a0b`)
  for (const text of ['', 'xyz', 'a'.repeat(33)]) t.equal(parseSerialText(text), null)
  t.not(serialText(randomSerial()), serialText(randomSerial()))
})

t.test('general names survive writing and reading', async t => {
  t.same(decodeGeneralNames(writeDer(encodeGeneralNames(NAMES))), NAMES)
})

t.test('OpenSSL reads our PKCS#7 chain', async t => {
  const root = authority('CN=Root', keyOf('RSA 2048'), 1, null)
  const below = authority('CN=Below', p256, 0, root)
  const der = writeCertificateBag([below.pem, root.pem].map(pem => decodePem(pem, ['CERTIFICATE'], 'certificate')))
  const shown = openssl(['pkcs7', '-inform', 'DER', '-print_certs', '-noout'], der)
  t.match(shown, { status: 0, text: /CN = Below[\s\S]*CN = Root/ })
  t.equal(openssl(['pkcs7', '-inform', 'DER', '-noout'], der).status, 0)
})

t.test('a certificate that is read and written has the same bytes', async t => {
  const pem = authority('CN=Root', p256, 3, null).pem
  t.equal(readCaCertificate(pem).pathLength, 3)
  const der = decodePem(pem, ['CERTIFICATE'], 'certificate')
  t.ok(writeDer(readDer(der, 'certificate')).equals(der))
  t.equal(createPrivateKey(p256.export({ format: 'pem', type: 'pkcs8' })).type, 'private')
})
