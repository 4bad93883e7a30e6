import { readFileSync } from 'node:fs'
import t from 'tap'
import { encodePem } from '../../../x509/encoding/pem.js'
import { type OcspQuestion, readOcspQuestion } from '../../../x509/ocsp/certificate-id.js'
import { writeOcspRequest } from '../../../x509/ocsp/request.js'
import { readOcspResponse } from '../../../x509/ocsp/response.js'
import { certificateWith, derOf, OCSP_SIGNING, ocspResponse } from '../../support/inputs/ocsp.js'
import { authority, fileOf, KINDS, keyOf, openssl } from '../../support/inputs/x509.js'

/** OpenSSL answers the requests that we write, and we read what it answers; and the other way round. */

const pemOf = (der: Buffer) => encodePem('CERTIFICATE', der)
const questionOf = (chain: readonly Buffer[]): OcspQuestion => {
  const found = readOcspQuestion(chain)
  if (found === null) throw new Error('no question')
  return found
}

for (const kind of KINDS) {
  t.test(`responses signed with a key of ${kind}`, async t => {
    const ca = authority('CN=Issuer,O=Müller & Söhne', keyOf(kind), 0, null)
    // The first byte makes the encoding longer by one.
    const serial = Buffer.from('f00dfeed0000000000000000000000aa', 'hex')
    const leaf = certificateWith(ca, keyOf('P-256'), { serial, responders: ['http://ocsp.test/'] })
    const question = questionOf([leaf, derOf(ca.pem)])
    const key = keyOf(kind)
    const responder = certificateWith(ca, key, { name: 'CN=Responder', extensions: [OCSP_SIGNING] })
    const signers = [
      [ca.pem, ca.key],
      [pemOf(responder), key],
    ] as const
    const statuses = [
      ['good', `V\t351231235959Z\t\t${serial.toString('hex').toUpperCase()}\tunknown\t/CN=x\n`],
      ['revoked', `R\t351231235959Z\t200101000000Z\t${serial.toString('hex').toUpperCase()}\tunknown\t/CN=x\n`],
      ['unknown', ''],
    ] as const
    for (const [certificate, signer] of signers) {
      for (const [status, index] of statuses) {
        const response = fileOf('')
        const key = fileOf(signer.export({ type: 'pkcs8', format: 'pem' }).toString())
        const answered = openssl([
          ...['ocsp', '-index', fileOf(index), '-CA', fileOf(ca.pem), '-rsigner', fileOf(certificate), '-rkey', key],
          ...['-reqin', fileOf(writeOcspRequest(question)), '-respout', response, '-nmin', '60'],
        ])
        t.match(answered, { status: 0 }, answered.text)
        const read = readOcspResponse(readFileSync(response), question, new Date())
        t.match(read, { status })
        t.equal(read.nextUpdate.getTime() - read.thisUpdate.getTime(), 3_600_000)
      }
    }
    const ours = ocspResponse(question, { signer: { key, certificate: responder }, isDelegated: true })
    const verified = openssl([
      ...['ocsp', '-respin', fileOf(ours), '-CAfile', fileOf(ca.pem), '-issuer', fileOf(ca.pem)],
      ...['-cert', fileOf(pemOf(leaf)), '-no_nonce'],
    ])
    t.match(verified, { status: 0, text: /: good\n[\s\S]*Response verify OK/ }, verified.text)
  })
}

t.test('the request is the one that OpenSSL writes', async t => {
  const ca = authority('CN=Issuer', keyOf('RSA 2048'), 0, null)
  const leaf = certificateWith(ca, keyOf('P-256'), { responders: ['http://ocsp.test/'] })
  const request = fileOf('')
  const files = ['-issuer', fileOf(ca.pem), '-cert', fileOf(pemOf(leaf))]
  t.match(openssl(['ocsp', ...files, '-no_nonce', '-reqout', request]), { status: 0 })
  t.same(readFileSync(request), writeOcspRequest(questionOf([leaf, derOf(ca.pem)])))
  const url = openssl(['x509', '-noout', '-ocsp_uri', '-in', fileOf(pemOf(leaf))]).text.trim()
  t.equal(url, 'http://ocsp.test/')
})
