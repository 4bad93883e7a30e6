import { connect } from 'node:tls'
import {
  type Asn1,
  booleanValue,
  contextTag,
  objectIdentifierIn,
  octetStringIn,
  readDer,
  sequenceIn,
  taggedIn,
  writeDer,
} from '../../../../x509/encoding/asn1.js'
import { decodeGeneralNames, type GeneralName } from '../../../../x509/encoding/general-names.js'
import { OID } from '../../../../x509/extensions.js'
import { InvalidX509 } from '../../../../x509/invalid-x509.js'
import { codeOf } from './http.js'
import { failed, type ProbeResult, type TlsJob } from './job.js'

const PROTOCOL = 'acme-tls/1'
const MAX_CERTIFICATE_BYTES = 16_384

/** Makes one handshake with one address by RFC 8737, and reads the certificate. */
export function probeTls({ address, port, serverName }: TlsJob): Promise<ProbeResult> {
  return new Promise(resolve => {
    const socket = connect({
      ...{ host: address, port, servername: serverName, ALPNProtocols: [PROTOCOL] },
      // The certificate is self-signed by definition: its content is the proof.
      rejectUnauthorized: false,
      minVersion: 'TLSv1.2',
    })
    let connected = false
    socket.once('connect', () => {
      connected = true
    })
    socket.once('error', error => resolve(failed(connected ? 'tls' : 'connection', codeOf(error))))
    socket.once('secureConnect', () => {
      resolve(resultOf(socket.alpnProtocol, socket.getPeerCertificate().raw))
      socket.destroy()
    })
  })
}

function resultOf(protocol: string | false | null, der: Buffer | undefined): ProbeResult {
  try {
    if (der === undefined || der.length > MAX_CERTIFICATE_BYTES) throw new InvalidX509('no certificate of usual size')
    return { kind: 'tls-alpn', protocol: protocol || null, ...readChallengeCertificate(der) }
  } catch (error) {
    if (error instanceof InvalidX509) return failed('tls', error.message)
    throw error
  }
}

/** The names of a certificate, and the content of its acmeIdentifier if that is critical. @throws InvalidX509 */
export function readChallengeCertificate(der: Buffer): { names: GeneralName[]; digest: string | null } {
  const members = sequenceIn(sequenceIn(readDer(der, 'certificate'))?.[0]) ?? []
  const list = taggedIn(
    members.find(member => contextTag(member) === 3),
    3,
  )?.[0]
  let names: GeneralName[] = []
  let digest: string | null = null
  for (const extension of sequenceIn(list) ?? []) {
    const parts = sequenceIn(extension) ?? []
    const content = octetStringIn(parts.at(-1))
    const oid = objectIdentifierIn(parts[0])
    if (content === null) continue
    if (oid === OID.subjectAltName) names = decodeGeneralNames(content)
    if (oid === OID.acmeIdentifier && isCritical(parts)) {
      digest = octetStringIn(readDer(content, 'acmeIdentifier'))?.toString('hex') ?? null
    }
  }
  return { names, digest }
}

/** In DER, a boolean that is there at all is TRUE: FALSE is the default. */
const isCritical = ([, critical, ...others]: readonly Asn1[]): boolean =>
  critical !== undefined && others.length === 1 && writeDer(critical).equals(writeDer(booleanValue(true)))
