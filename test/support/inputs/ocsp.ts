import type { KeyObject } from 'node:crypto'
import { randomSerial, readCaCertificate, writeCertificate } from '../../../x509/certificate.js'
import {
  type Asn1,
  enumerated,
  integer,
  nullValue,
  objectIdentifier,
  octetString,
  readDer,
  sequence,
  tagged,
  taggedBytes,
  writeDer,
} from '../../../x509/encoding/asn1.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../../x509/encoding/name-encoding.js'
import { decodePem } from '../../../x509/encoding/pem.js'
import { extension, OID, subjectAltName } from '../../../x509/extensions.js'
import { type OcspQuestion, readIssuer } from '../../../x509/ocsp/certificate-id.js'
import { publicKeyOf } from '../../../x509/public-key.js'
import { signed } from '../../../x509/signing.js'
import { type Authority, DAY } from './x509.js'

export const derOf = (pem: string): Buffer => decodePem(pem, ['CERTIFICATE'], 'certificate')

export type CertificateWish = {
  name?: string
  serial?: Buffer
  /** URLs of responders. */
  responders?: readonly string[]
  extensions?: readonly Asn1[]
  notAfter?: Date
}

/** DER of a certificate that names where to ask for its status. */
export function certificateWith(issuer: Authority, key: KeyObject, wish: CertificateWish = {}): Buffer {
  const { name = 'CN=www.example.com', serial = randomSerial(), responders = [], extensions = [] } = wish
  const access = responders.map(url =>
    sequence(objectIdentifier('1.3.6.1.5.5.7.48.1'), taggedBytes(6, Buffer.from(url, 'latin1'))),
  )
  return writeCertificate(
    {
      serial,
      issuer: readCaCertificate(issuer.pem).subject,
      subject: encodeName(parseDistinguishedName(name)),
      publicKey: publicKeyOf(key),
      notBefore: new Date(Date.now() - 2 * DAY),
      notAfter: wish.notAfter ?? new Date(Date.now() + 30 * DAY),
      extensions: [
        subjectAltName([{ kind: 'dns', value: 'www.example.com' }], false),
        ...(access.length > 0 ? [extension(OID.authorityInfoAccess, sequence(...access))] : []),
        ...extensions,
      ],
    },
    issuer.key,
  )
}

export const OCSP_SIGNING = extension(OID.extendedKeyUsage, sequence(objectIdentifier('1.3.6.1.5.5.7.3.9')))

export type ResponseWish = {
  status?: Asn1
  thisUpdate?: Date
  nextUpdate?: Date | null
  /** Whose key signs it, and which certificate goes with it. */
  signer: { key: KeyObject; certificate: Buffer }
  isDelegated?: boolean
  byName?: boolean
  algorithm?: string
  copies?: number
}

export const GOOD = taggedBytes(0, Buffer.alloc(0))
export const UNKNOWN = taggedBytes(2, Buffer.alloc(0))
export const revokedAt = (date: Date): Asn1 => tagged(1, generalizedTime(date))

/** DER of a response to a question. */
export function ocspResponse({ nameHash, keyHash, serial }: OcspQuestion, wish: ResponseWish): Buffer {
  const { status = GOOD, thisUpdate = new Date(), signer, algorithm = '1.3.14.3.2.26', copies = 1 } = wish
  const { nextUpdate = new Date(thisUpdate.getTime() + DAY) } = wish
  const identity = readIssuer(signer.certificate)
  const single = sequence(
    sequence(
      sequence(objectIdentifier(algorithm), nullValue()),
      octetString(nameHash),
      octetString(keyHash),
      integer(serial),
    ),
    status,
    generalizedTime(thisUpdate),
    ...(nextUpdate === null ? [] : [tagged(0, generalizedTime(nextUpdate))]),
  )
  const tbs = sequence(
    wish.byName ? tagged(1, readDer(identity.name, 'name')) : tagged(2, octetString(identity.keyHash)),
    generalizedTime(thisUpdate),
    sequence(...Array.from({ length: copies }, () => single)),
  )
  const { value } = signed(tbs, signer.key)
  const parts = Array.isArray(value) ? value : []
  const certificates = wish.isDelegated ? [tagged(0, sequence(readDer(signer.certificate, 'certificate')))] : []
  const basic = octetString(writeDer(sequence(...parts, ...certificates)))
  return writeDer(sequence(enumerated(0), tagged(0, sequence(objectIdentifier('1.3.6.1.5.5.7.48.1.1'), basic))))
}

/** The same response with one bit of its signature changed. */
export function withOtherSignature(response: Buffer): Buffer {
  const changed = Buffer.from(response)
  const last = changed.length - 1
  changed.writeUInt8(changed.readUInt8(last) ^ 1, last)
  return changed
}

function generalizedTime(date: Date): Asn1 {
  const text = `${date.toISOString().slice(0, 19).replace(/[-:T]/g, '')}Z`
  return readDer(Buffer.concat([Buffer.of(0x18, text.length), Buffer.from(text)]), 'time')
}
