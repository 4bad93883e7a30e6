import { isIP } from 'node:net'
import * as z from 'zod'
import { type CertificateRequest, readCertificateRequest } from '../../../x509/certificate-request.js'
import { isDnsName } from '../../../x509/encoding/general-names.js'
import { decodeBase64 } from '../../../x509/encoding/pem.js'
import { InvalidX509 } from '../../../x509/invalid-x509.js'
import { badRequest, forbidden } from '../../http/errors.js'
import { CURVE_BITS, type PairAlgorithm, parsePairAlgorithm, supportsLength } from '../crypto/key-pair.js'
import { idInReference } from '../ids.js'
import { parseBody, textUpTo } from '../input.js'
import type { ParsedMeta } from '../orders/key-meta.js'
import type { Requester } from '../rights.js'
import type { Service } from '../service.js'
import { asBadRequest, parseSubjectDn } from './bad-request.js'
import type { RequestedValidity } from './ca-backend.js'
import { requireNamedAuthority } from './find-authority.js'
import { requireStoredKey } from './stored-key.js'

const text = textUpTo(255).nullish()
/** Of hosts and addresses. */
const names = z
  .array(z.string().refine(name => isIP(name) !== 0 || isDnsName(name), 'must be host names and addresses'))
  .max(100, 'must be at most 100 names')
  .nullish()

const refused = (reason: string) => z.undefined(reason).optional()

const time = z.iso.datetime({ offset: true, error: 'must be a time such as 2030-01-01T00:00:00Z' }).nullish()

/** The meta is stored in clear and shown to the whole project, so it must not hold a passphrase. */
const UNPROTECTED = 'is not supported: store it as a secret in the container of the private key'

/** Keeps unknown members, which may be meant for other back ends. */
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
  subject_alternative_names: names,
  algorithm: text,
  bit_length: z.int('must be a whole number').nullish(),
  curve: text,
  not_before: time,
  not_after: time,
  renew: z.boolean('must be true or false').nullish(),
  renew_key: z.boolean('must be true or false').nullish(),
  requestor_name: text,
  requestor_email: text,
  requestor_phone: text,
  extensions: refused('is not supported'),
  payload: refused('must not be given: the certificate authority creates it'),
  passphrase: refused(UNPROTECTED),
  pass_phrase: refused(UNPROTECTED),
  private_key: refused('must not be given: store the key as a secret and name its container in container_ref'),
})

type CertificateMeta = z.output<typeof certificateMeta>

/** What a certificate is for. `alternativeNames` come besides a host in the common name. */
export type RequestedNames = { subjectDn: string; alternativeNames: readonly string[] }

/** The content of a certificate order. */
export type CertificateSpec = {
  name: string | null
  caId: string | null
  /** Of the first certificate: renewals have the usual one. */
  validity: RequestedValidity
  /** Whether the certificate is renewed, and then with a new key. */
  renew: boolean
  newKey: boolean
} & (
  | ({ form: 'new key'; algorithm: PairAlgorithm; bits: number } & RequestedNames)
  | ({ form: 'stored key'; containerId: string } & RequestedNames)
  /** `requestData` is a certificate request for `decodeRequest`; if it is missing, the CA refuses the order. */
  | { form: 'request'; requestData: string | null }
)

const DEFAULT_BITS: Readonly<Record<'rsa' | 'ec', number>> = { rsa: 2048, ec: 256 }

/**
 * Parses the meta of a certificate order. Pure.
 * @throws ApiError 400 for invalid meta
 */
export function parseCertificateSpec(value: unknown): CertificateSpec {
  return specFromMeta(parseBody(certificateMeta, value, 'meta of the order'))
}

function specFromMeta(meta: CertificateMeta): CertificateSpec {
  const common = {
    name: meta.name ?? null,
    caId: meta.ca_id ? caIdFrom(meta.ca_id) : null,
    validity: { notBefore: timeIn(meta.not_before), notAfter: timeIn(meta.not_after) },
    renew: meta.renew ?? true,
    newKey: false,
  }
  if (meta.profile && common.caId === null) throw badRequest('A profile also needs the ca_id of its CA.')
  const type = meta.request_type ?? 'custom'
  if (type === 'stored-key') {
    const containerId = idInReference(required(meta, 'container_ref'))
    if (containerId === null) throw badRequest('The container_ref is not a reference to a container.')
    refuseNewKey(meta)
    return { ...common, form: 'stored key', containerId, ...namesIn(meta) }
  }
  // OpenStack's client sends a subject without an algorithm.
  const isForNewKey = Boolean(meta.algorithm || meta.subject_dn) && !meta.request_data && !meta.container_ref
  if (type === 'custom' && isForNewKey) {
    const algorithm = meta.algorithm || 'rsa'
    const spec = { ...namesIn(meta), ...newKeySpec(meta, algorithm) }
    return { ...common, newKey: meta.renew_key ?? true, form: 'new key', ...spec }
  }
  const requestData = type === 'simple-cmc' ? required(meta, 'request_data') : meta.request_data || null
  if (meta.subject_alternative_names?.length) {
    throw badRequest(
      'The names of this certificate are in its request, so subject_alternative_names must not be given.',
    )
  }
  refuseNewKey(meta)
  // The private key is elsewhere, so no listener serves the container: whoever asks for it gets the renewals.
  return { ...common, renew: meta.renew ?? false, form: 'request', requestData }
}

/** @throws ApiError 400 if renewals are to have new keys although the order's key is somebody else's */
export function refuseNewKey({ renew_key }: Pick<CertificateMeta, 'renew_key'>): void {
  if (renew_key === true) {
    throw badRequest('The key of this certificate is not made by the order, so renewals use the same key.')
  }
}

const timeIn = (value: string | null | undefined): Date | null => (value ? new Date(value) : null)

const caIdFrom = (given: string): string => idInReference(given) ?? given

const namesIn = (meta: CertificateMeta): RequestedNames => ({
  subjectDn: required(meta, 'subject_dn'),
  alternativeNames: meta.subject_alternative_names ?? [],
})

function required(meta: CertificateMeta, member: 'container_ref' | 'subject_dn' | 'request_data'): string {
  const value = meta[member]
  if (value) return value
  throw badRequest(`The meta of this kind of certificate order needs ${member}.`)
}

function newKeySpec({ bit_length, curve }: CertificateMeta, named: string): { algorithm: PairAlgorithm; bits: number } {
  const algorithm = parsePairAlgorithm(named)
  if (algorithm !== 'rsa' && algorithm !== 'ec')
    throw badRequest('The algorithm of a certificate order must be rsa or ec.')
  const bitsOfCurve = curve && algorithm === 'ec' ? CURVE_BITS[curve] : undefined
  const bits = bit_length ?? bitsOfCurve ?? DEFAULT_BITS[algorithm]
  if (!supportsLength(algorithm, bits)) throw badRequest(`The bit_length ${bits} is not supported for ${algorithm}.`)
  if (curve && algorithm === 'ec' && bitsOfCurve !== bits) {
    throw badRequest(`The curve ${curve} is unknown or does not have ${bits} bits.`)
  }
  return { algorithm, bits }
}

/**
 * @param requestData a certificate request: base64 of its PEM or DER, or the PEM itself, as OpenStack's client sends it
 * @throws InvalidX509
 */
export function decodeRequest(requestData: string | null): CertificateRequest {
  if (requestData === null) throw new InvalidX509('The meta of the order has no request_data.')
  const bytes = requestData.includes('-----BEGIN') ? Buffer.from(requestData) : decodeBase64(requestData)
  if (bytes === null) throw new InvalidX509('The request_data is neither PEM nor base64.')
  return readCertificateRequest(bytes)
}

/**
 * Validates the meta of a new certificate order: its form, and that the caller may use the CA and the container in it.
 * @returns the meta to store
 * @throws ApiError 400 for invalid meta or missing objects, 403 for a CA or container that the caller may not use
 */
export async function parseCertificateMeta(
  service: Service,
  who: Requester,
  value: unknown,
): Promise<ParsedMeta<Readonly<Record<string, unknown>>>> {
  const meta = parseBody(certificateMeta, value, 'meta of the order')
  const spec = specFromMeta(meta)
  if (spec.form !== 'request') parseSubjectDn(spec.subjectDn)
  else if (meta.request_type === 'simple-cmc') requireReadable(spec.requestData)
  else refusePrivateKey(spec.requestData)
  if (spec.caId !== null) await requireUsableAuthority(service, who, spec.caId)
  if (spec.form === 'stored key') await requireStoredKey(service, who, spec.containerId)
  return { meta, expiration: null, passphrase: null }
}

function requireReadable(requestData: string | null): void {
  try {
    decodeRequest(requestData)
  } catch (error) {
    asBadRequest(error)
  }
}

/**
 * Tools may write private key and request into one file. The CA checks the request later, but a key must not
 * be stored in clear.
 */
function refusePrivateKey(requestData: string | null): void {
  const texts = [requestData ?? '', decodeBase64(requestData ?? '')?.toString('latin1') ?? '']
  if (texts.some(text => text.includes('PRIVATE KEY-----'))) {
    throw badRequest('The request_data contains a private key; send only the certificate request.')
  }
}

async function requireUsableAuthority({ database }: Service, who: Requester, caId: string): Promise<void> {
  const authority = await requireNamedAuthority(database, who.projectId, caId)
  if (authority.hasList && !authority.listed) {
    throw forbidden('The certificate authority is not on the list of the project.')
  }
}
