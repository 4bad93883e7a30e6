import { type CertificateRequest, readCertificateRequest } from '../../../../x509/certificate-request.js'
import { InvalidX509 } from '../../../../x509/invalid-x509.js'
import { AcmeProblem, type Identifier } from '../problem.js'
import { thumbprintOf } from '../signatures/jws.js'
import { canonicalAddress } from './addresses.js'

const COMMON_NAME = '2.5.4.3'

/**
 * Reads the certificate request of an order and checks that it asks for exactly the order's identifiers, with a key
 * that is strong enough and not the account's.
 * @param der base64url of its DER
 * @param accountThumbprint of the account's key
 * @throws AcmeProblem badCSR
 */
export async function readOrderedRequest(
  der: string,
  identifiers: readonly Identifier[],
  accountThumbprint: string,
): Promise<CertificateRequest> {
  const request = parseRequest(der)
  const fault = requestFault(request, identifiers)
  if (fault !== null) throw badRequest(fault)
  if ((await thumbprintOf(request.publicKey.key.export({ format: 'jwk' }))) === accountThumbprint) {
    throw badRequest('The key of the certificate must not be the key of the account.')
  }
  return request
}

const badRequest = (detail: string) => new AcmeProblem('badCSR', detail)

function parseRequest(der: string): CertificateRequest {
  if (!/^[A-Za-z0-9_-]+$/.test(der)) throw badRequest('The csr must be the base64url of a certificate request in DER.')
  try {
    return readCertificateRequest(Buffer.from(der, 'base64url'))
  } catch (error) {
    throw error instanceof InvalidX509 ? badRequest(error.message) : error
  }
}

/** What is wrong with the names of a request, as a sentence; null if it has exactly the identifiers. Pure. */
export function requestFault(
  { subject, alternativeNames }: Pick<CertificateRequest, 'subject' | 'alternativeNames'>,
  identifiers: readonly Identifier[],
): string | null {
  const ordered = new Set(identifiers.map(keyOf))
  if (alternativeNames.some(({ kind }) => kind !== 'dns' && kind !== 'ip')) {
    return 'Only host names and addresses can be subject alternative names of an ACME certificate.'
  }
  const asked = new Set(alternativeNames.map(({ kind, value }) => keyOf({ type: kind === 'ip' ? 'ip' : 'dns', value })))
  const missing = [...ordered].find(key => !asked.has(key))
  if (missing !== undefined) return `The subject alternative names lack the identifier ${nameIn(missing)}.`
  const excess = [...asked].find(key => !ordered.has(key))
  if (excess !== undefined) return `The name ${nameIn(excess)} is not an identifier of the order.`
  const attributes = subject.flat()
  if (attributes.some(({ type }) => type !== COMMON_NAME)) return 'The subject may have nothing but a common name.'
  const names = new Set(identifiers.map(({ value }) => value))
  const other = attributes.find(({ value }) => !names.has(value.toLowerCase()))
  return other === undefined ? null : 'The common name is not an identifier of the order.'
}

const keyOf = ({ type, value }: Identifier): string =>
  `${type} ${type === 'ip' ? (canonicalAddress(value) ?? value) : value.toLowerCase()}`

const nameIn = (key: string): string => key.slice(key.indexOf(' ') + 1)
