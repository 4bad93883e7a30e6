import { createPrivateKey, type KeyObject } from 'node:crypto'
import { isIP } from 'node:net'
import {
  type CertificateRequest,
  readCertificateRequest,
  writeCertificateRequest,
} from '../../../../x509/certificate-request.js'
import { parseDistinguishedName } from '../../../../x509/encoding/distinguished-name.js'
import { type GeneralName, isDnsName } from '../../../../x509/encoding/general-names.js'
import { InvalidX509 } from '../../../../x509/invalid-x509.js'
import { ApiError } from '../../../http/errors.js'
import { CryptoUnavailable } from '../../crypto/backend.js'
import { generateKeyPair } from '../../crypto/key-pair.js'
import type { MadeSecret, Order, OrderOutcome } from '../../orders/outcome.js'
import { findBackend } from '../backends.js'
import type { CaBackend, CaService, IssuedCertificate, RequestedValidity } from '../ca-backend.js'
import { type CertificateSpec, decodeRequest, type RequestedNames } from '../certificate-meta.js'
import { defaultAuthority, requireNamedAuthority } from '../find-authority.js'
import { openStoredKey, type StoredKey } from '../stored-key.js'
import { forgetPending, pendingKey } from './pending-key.js'

/** Pause before an unavailable CA is asked again. */
const RETRY_SECONDS = 300

/** A certificate request and, if this service has the private key, where the key comes from. */
type RequestedKey = { request: CertificateRequest; made: MadeSecret | null; stored: StoredKey | null }

/** Whom the certificate is for. The id is the order's. */
export type Applicant = Pick<Order, 'id' | 'projectId' | 'creatorId'>

/** What a renewal adds to its order. */
export type FormerCertificate = {
  pem: string | null
  /** Opens its key, which the new certificate gets too; null lets the order decide. */
  keep: (() => Promise<StoredKey | null>) | null
}

/** A certificate with the parts of its container, or why there is none. */
export type Obtained =
  | {
      kind: 'obtained'
      issued: IssuedCertificate
      /** New secrets for the container, and existing ones that it refers to. */
      secrets: readonly MadeSecret[]
      references: readonly { role: string; secretId: string }[]
    }
  | Extract<OrderOutcome, { kind: 'failed' }>
  /** `isCaWish`: the CA said when to ask again. */
  | (Extract<OrderOutcome, { kind: 'later' }> & { isCaWish: boolean })

/**
 * Makes or reads the private key unless the order has a request, writes the request and asks the CA. Stores nothing but
 * what a CA that takes several steps needs in the next one.
 * @param validity of this certificate only; by default the CA's
 */
export async function obtainCertificate(
  service: CaService,
  backends: readonly CaBackend[],
  { applicant, spec, validity }: { applicant: Applicant; spec: CertificateSpec; validity?: RequestedValidity },
  signal: AbortSignal,
  former: FormerCertificate = { pem: null, keep: null },
): Promise<Obtained> {
  try {
    const authority = await findAuthority(service, applicant, spec.caId)
    if (authority === null) return retryLater('There is no certificate authority yet.')
    const backend = findBackend(backends, authority.pluginName)
    const key = await findKey(service, applicant, spec, { keep: former.keep, takesSteps: backend.takesSteps })
    if (key === null) {
      return { ...invalidOrder('The creator of the order may no longer use the private key.'), statusCode: '403' }
    }
    const details = { requestId: applicant.id, replaces: former.pem, validity }
    const outcome = await backend.issue(authority.id, applicant.projectId, key.request, signal, details)
    switch (outcome.kind) {
      case 'issued':
        return obtained(spec, key, outcome.issued)
      case 'pending':
        return {
          kind: 'later',
          seconds: outcome.seconds,
          subStatus: 'cert_request_pending',
          subStatusMessage: outcome.message,
          isCaWish: false,
        }
      case 'rejected':
        if (backend.takesSteps) await forgetPending(service, applicant.id)
        return { kind: 'failed', statusCode: '400', reason: outcome.reason, subStatus: 'cert_invalid_operation' }
      case 'unavailable':
        return retryLater(outcome.message, outcome.retryAfter)
    }
  } catch (error) {
    return refusalOf(error)
  }
}

/** @throws the error if it is neither the order's fault nor an unavailable back end */
function refusalOf(error: unknown): Obtained {
  if (error instanceof InvalidX509) return invalidOrder(error.message)
  if (error instanceof CryptoUnavailable) return retryLater('Keys are temporarily unavailable.')
  if (error instanceof ApiError && error.status === 400) return invalidOrder(error.message)
  if (error instanceof ApiError && error.status === 403) return { ...invalidOrder(error.message), statusCode: '403' }
  throw error
}

export const invalidOrder = (reason: string) =>
  ({ kind: 'failed', statusCode: '400', reason, subStatus: 'cert_data_invalid' }) satisfies OrderOutcome

const retryLater = (subStatusMessage: string, retryAfter?: number): Obtained => ({
  kind: 'later',
  seconds: retryAfter === undefined ? RETRY_SECONDS : Math.max(1, retryAfter),
  isCaWish: retryAfter !== undefined,
  subStatus: 'cert_ca_unavail_for_issue',
  subStatusMessage,
})

const findAuthority = ({ database }: CaService, { projectId }: Applicant, caId: string | null) =>
  caId === null ? defaultAuthority(database, projectId) : requireNamedAuthority(database, projectId, caId)

/** Null if the creator of the order may no longer use the stored key. @throws InvalidX509 */
async function findKey(
  service: CaService,
  applicant: Applicant,
  spec: CertificateSpec,
  { keep, takesSteps }: Pick<FormerCertificate, 'keep'> & { takesSteps: boolean },
): Promise<RequestedKey | null> {
  if (spec.form === 'request') return { request: decodeRequest(spec.requestData), made: null, stored: null }
  if (keep === null && spec.form === 'new key') return newKey(service, applicant, spec, takesSteps)
  const stored = await (keep ?? (() => openStoredKey(service, applicant, containerOf(spec))))()
  return stored === null ? null : { request: createRequest(spec, stored.key), made: null, stored }
}

const containerOf = (spec: CertificateSpec): string => (spec.form === 'stored key' ? spec.containerId : '')

async function newKey(
  service: CaService,
  applicant: Applicant,
  spec: Extract<CertificateSpec, { form: 'new key' }>,
  takesSteps: boolean,
): Promise<RequestedKey> {
  const make = async () => (await generateKeyPair(spec.algorithm, spec.bits)).privateKey
  const key = takesSteps ? await pendingKey(service, applicant, make) : createPrivateKey(await make())
  const made = newSecret(spec, 'private_key', 'private', key.export({ format: 'pem', type: 'pkcs8' }), {
    algorithm: spec.algorithm,
    bitLength: spec.bits,
  })
  return { request: createRequest(spec, key), made, stored: null }
}

/** A new request. Clients check only subject alternative names, so a host in the common name is added to them. */
function createRequest({ subjectDn, alternativeNames }: RequestedNames, key: KeyObject): CertificateRequest {
  const subject = parseDistinguishedName(subjectDn)
  const commonName = subject.flat().find(({ type }) => type === COMMON_NAME)?.value
  const names = new Set([...(commonName === undefined ? [] : [commonName]), ...alternativeNames])
  return readCertificateRequest(writeCertificateRequest(subject, key, [...names].flatMap(hostName)))
}

const COMMON_NAME = '2.5.4.3'

function hostName(name: string): GeneralName[] {
  if (isIP(name) !== 0) return [{ kind: 'ip', value: name }]
  return isDnsName(name) ? [{ kind: 'dns', value: name }] : []
}

function newSecret(
  { name }: { name: string | null },
  role: string,
  secretType: MadeSecret['secretType'],
  payload: string | Buffer,
  { algorithm = null, bitLength = null }: { algorithm?: string | null; bitLength?: number | null } = {},
): MadeSecret {
  return {
    ...{ role, secretType, algorithm, bitLength, mode: null, expiration: null },
    name: name === null ? null : `${[...name].slice(0, 255 - role.length - 1).join('')}-${role}`,
    payload: Buffer.from(payload),
    contentType: 'application/octet-stream',
  }
}

/** What a listener needs to terminate TLS, as far as this service has it. */
function obtained(spec: CertificateSpec, key: RequestedKey, issued: IssuedCertificate): Obtained {
  const { certificate, intermediates } = issued
  const parts = key.stored?.parts ?? []
  const copies = parts
    .filter(({ foreign }) => foreign)
    .map(({ role, payload, contentType }) => ({
      ...newSecret(spec, role, role === 'private_key' ? 'private' : 'passphrase', payload),
      contentType,
    }))
  return {
    kind: 'obtained',
    issued,
    secrets: [
      newSecret(spec, 'certificate', 'certificate', certificate),
      ...(intermediates === '' ? [] : [newSecret(spec, 'intermediates', 'certificate', intermediates)]),
      ...(key.made === null ? [] : [key.made]),
      ...copies,
    ],
    references: parts.filter(({ foreign }) => !foreign).map(({ role, secretId }) => ({ role, secretId })),
  }
}
