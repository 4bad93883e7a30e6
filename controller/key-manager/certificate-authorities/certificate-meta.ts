import { z } from 'zod'
import { badRequest, forbidden } from '../../http/errors.js'
import { type CertificateRequest, readCertificateRequest } from '../../x509/certificate-request.js'
import { decodeBase64 } from '../../x509/encoding/pem.js'
import { InvalidX509 } from '../../x509/invalid-x509.js'
import { CURVE_BITS, type PairAlgorithm, parsePairAlgorithm, supportsLength } from '../crypto/key-pair.js'
import { idInReference } from '../ids.js'
import { parseBody } from '../input.js'
import type { ParsedMeta } from '../orders/key-meta.js'
import type { Requester } from '../rights.js'
import type { Service } from '../service.js'
import { asBadRequest, usableName } from './bad-request.js'
import { requireNamedAuthority } from './find-authority.js'
import { requireStoredKey } from './stored-key.js'

const text = z.string().max(255, 'must have at most 255 characters').nullish()
const refused = (why: string) => z.undefined(why).optional()

/** The meta is stored as it is, and shown to the whole project. */
const UNPROTECTED = 'is not supported: store it as a secret of the container that holds the private key'

/** Members for other back ends may come as well; they are kept and shown again. */
const certificateMeta = z.looseObject({
  name: text,
  request_type: z
    .enum(['custom', 'simple-cmc', 'stored-key'], 'must be custom, simple-cmc or stored-key; full-cmc is not supported')
    .nullish(),
  ca_id: text,
  profile: text,
  request_data: z.string().nullish(),
  container_ref: z.string().nullish(),
  subject_dn: z.string().nullish(),
  algorithm: text,
  bit_length: z.int('must be a whole number').nullish(),
  curve: text,
  requestor_name: text,
  requestor_email: text,
  requestor_phone: text,
  extensions: refused('is not supported'),
  payload: refused('must not be given: the certificate authority makes it'),
  passphrase: refused(UNPROTECTED),
  pass_phrase: refused(UNPROTECTED),
  private_key: refused('must not be given: keys are stored as secrets, and named by container_ref'),
})

type CertificateMeta = z.output<typeof certificateMeta>

/** What an order of a certificate asks for. */
export type CertificateWish = { name: string | null; caId: string | null } & (
  | { form: 'new key'; subjectDn: string; algorithm: PairAlgorithm; bits: number }
  | { form: 'stored key'; subjectDn: string; containerId: string }
  /** `requestData` is a certificate request as `decodeRequest` reads it; it is for the CA to miss it. */
  | { form: 'request'; requestData: string | null }
)

const DEFAULT_BITS: Readonly<Record<'rsa' | 'ec', number>> = { rsa: 2048, ec: 256 }

/**
 * Reads the meta of an order of a certificate. Pure.
 * @throws ApiError 400 for what is no such order
 */
export function certificateWishOf(value: unknown): CertificateWish {
  return wishOf(parseBody(certificateMeta, value, 'meta of the order'))
}

function wishOf(meta: CertificateMeta): CertificateWish {
  const common = { name: meta.name ?? null, caId: meta.ca_id ? caIdOf(meta.ca_id) : null }
  if (meta.profile && common.caId === null) throw badRequest('A profile needs the ca_id of the CA that knows it.')
  const type = meta.request_type ?? 'custom'
  if (type === 'stored-key') {
    const containerId = idInReference(required(meta, 'container_ref'))
    if (containerId === null) throw badRequest('The container_ref names no container.')
    return { ...common, form: 'stored key', containerId, subjectDn: required(meta, 'subject_dn') }
  }
  // OpenStack's client sends no algorithm with the subject that it is given.
  const isForNewKey = Boolean(meta.algorithm || meta.subject_dn) && !meta.request_data && !meta.container_ref
  if (type === 'custom' && isForNewKey) {
    const algorithm = meta.algorithm || 'rsa'
    return { ...common, form: 'new key', subjectDn: required(meta, 'subject_dn'), ...newKeyOf(meta, algorithm) }
  }
  const requestData = type === 'simple-cmc' ? required(meta, 'request_data') : meta.request_data || null
  return { ...common, form: 'request', requestData }
}

const caIdOf = (given: string): string => idInReference(given) ?? given

function required(meta: CertificateMeta, member: 'container_ref' | 'subject_dn' | 'request_data'): string {
  const value = meta[member]
  if (value) return value
  throw badRequest(`The meta of an order of this kind of certificate must hold ${member}.`)
}

function newKeyOf({ bit_length, curve }: CertificateMeta, named: string): { algorithm: PairAlgorithm; bits: number } {
  const algorithm = parsePairAlgorithm(named)
  if (algorithm !== 'rsa' && algorithm !== 'ec')
    throw badRequest('The algorithm of a certificate order must be rsa or ec.')
  const bitsOfCurve = curve && algorithm === 'ec' ? CURVE_BITS[curve] : undefined
  const bits = bit_length ?? bitsOfCurve ?? DEFAULT_BITS[algorithm]
  if (!supportsLength(algorithm, bits)) throw badRequest(`Keys of ${bits} bits are not supported for ${algorithm}.`)
  if (curve && algorithm === 'ec' && bitsOfCurve !== bits) {
    throw badRequest(`The curve ${curve} is not known, or has not ${bits} bits.`)
  }
  return { algorithm, bits }
}

/**
 * @param requestData a certificate request: base64 of its PEM or DER, or the PEM itself, as OpenStack's client sends the file that it is given
 * @throws InvalidX509
 */
export function decodeRequest(requestData: string | null): CertificateRequest {
  if (requestData === null) throw new InvalidX509('There is no request_data to certify.')
  const bytes = requestData.includes('-----BEGIN') ? Buffer.from(requestData) : decodeBase64(requestData)
  if (bytes === null) throw new InvalidX509('The request_data is neither PEM nor base64.')
  return readCertificateRequest(bytes)
}

/**
 * Checks the meta of a new order of a certificate: its shape, and whether what it names is there and the caller may use it.
 * @returns the meta as it is to be stored
 * @throws ApiError 400 for what cannot be carried out, 403 for a CA or a container that the caller may not use
 */
export async function parseCertificateMeta(
  service: Service,
  who: Requester,
  value: unknown,
): Promise<ParsedMeta<Readonly<Record<string, unknown>>>> {
  const meta = parseBody(certificateMeta, value, 'meta of the order')
  const wish = wishOf(meta)
  if (wish.form !== 'request') usableName(wish.subjectDn)
  else if (meta.request_type === 'simple-cmc') requireReadable(wish.requestData)
  else requireNoPrivateKey(wish.requestData)
  if (wish.caId !== null) await requireUsableAuthority(service, who, wish.caId)
  if (wish.form === 'stored key') await requireStoredKey(service, who, wish.containerId)
  return { meta, expiration: null, passphrase: null }
}

function requireReadable(requestData: string | null): void {
  try {
    decodeRequest(requestData)
  } catch (error) {
    asBadRequest(error)
  }
}

/** Tools write private key and request into one file: what is no request is for the CA to miss, but a key must not be stored in clear. */
function requireNoPrivateKey(requestData: string | null): void {
  const texts = [requestData ?? '', decodeBase64(requestData ?? '')?.toString('latin1') ?? '']
  if (texts.some(text => text.includes('PRIVATE KEY-----'))) {
    throw badRequest('The request_data holds a private key; send the certificate request alone.')
  }
}

async function requireUsableAuthority({ database }: Service, who: Requester, caId: string): Promise<void> {
  const authority = await requireNamedAuthority(database, who.projectId, caId)
  if (authority.hasList && !authority.listed) {
    throw forbidden('The certificate authority is not on the list of the project.')
  }
}
