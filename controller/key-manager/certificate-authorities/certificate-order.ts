import { createPrivateKey, type KeyObject } from 'node:crypto'
import { isIP } from 'node:net'
import {
  type CertificateRequest,
  readCertificateRequest,
  writeCertificateRequest,
} from '../../../x509/certificate-request.js'
import { parseDistinguishedName } from '../../../x509/encoding/distinguished-name.js'
import { type GeneralName, isDnsName } from '../../../x509/encoding/general-names.js'
import { InvalidX509 } from '../../../x509/invalid-x509.js'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { ApiError } from '../../http/errors.js'
import { recordAudit } from '../audit/record.js'
import { CryptoUnavailable } from '../crypto/backend.js'
import { generateKeyPair } from '../crypto/key-pair.js'
import { actorOf } from '../orders/order.js'
import type { MadeSecret, Order, OrderExecutor, OrderOutcome } from '../orders/outcome.js'
import { findBackend } from './backends.js'
import type { CaBackend, CaService, IssuedCertificate } from './ca-backend.js'
import { type CertificateSpec, decodeRequest, parseCertificateSpec } from './certificate-meta.js'
import { defaultAuthority, requireNamedAuthority } from './find-authority.js'
import { openStoredKey, type StoredKey } from './stored-key.js'

/** Pause before an unavailable CA is asked again. */
const RETRY_SECONDS = 300

/** A certificate request and, if this service has the private key, where the key comes from. */
type OrderedKey = { request: CertificateRequest; made: MadeSecret | null; stored: StoredKey | null }

/**
 * Executes certificate orders: makes or reads the private key unless the order has a request, writes the
 * request and asks the CA.
 */
export function certificateOrderExecutor(service: CaService, backends: readonly CaBackend[]): OrderExecutor {
  return async (order, signal) => {
    try {
      const spec = parseCertificateSpec(order.meta)
      const authority = await findAuthority(service, order, spec.caId)
      if (authority === null) return retryLater('There is no certificate authority yet.')
      const key = await findKey(service, order, spec)
      if (key === null) {
        return { ...invalidOrder('The creator of the order may no longer use the private key.'), statusCode: '403' }
      }
      const outcome = await findBackend(backends, authority.pluginName).issue(
        authority.id,
        order.projectId,
        key.request,
        signal,
      )
      switch (outcome.kind) {
        case 'issued':
          return issuedOutcome(order, spec, key, outcome.issued)
        case 'pending':
          return {
            kind: 'later',
            seconds: outcome.seconds,
            subStatus: 'cert_request_pending',
            subStatusMessage: outcome.message,
          }
        case 'rejected':
          return { kind: 'failed', statusCode: '400', reason: outcome.reason, subStatus: 'cert_invalid_operation' }
        case 'unavailable':
          return retryLater(outcome.message)
      }
    } catch (error) {
      if (error instanceof InvalidX509) return invalidOrder(error.message)
      if (error instanceof ApiError && error.status === 400) return invalidOrder(error.message)
      if (error instanceof ApiError && error.status === 403)
        return { ...invalidOrder(error.message), statusCode: '403' }
      if (error instanceof CryptoUnavailable) return retryLater('Keys are temporarily unavailable.')
      throw error
    }
  }
}

const invalidOrder = (reason: string) =>
  ({ kind: 'failed', statusCode: '400', reason, subStatus: 'cert_data_invalid' }) satisfies OrderOutcome

const retryLater = (subStatusMessage: string): OrderOutcome => ({
  kind: 'later',
  seconds: RETRY_SECONDS,
  subStatus: 'cert_ca_unavail_for_issue',
  subStatusMessage,
})

const findAuthority = ({ database }: CaService, { projectId }: Order, caId: string | null) =>
  caId === null ? defaultAuthority(database, projectId) : requireNamedAuthority(database, projectId, caId)

/** Null if the creator of the order may no longer use the stored key. @throws InvalidX509 */
async function findKey(service: CaService, order: Order, spec: CertificateSpec): Promise<OrderedKey | null> {
  switch (spec.form) {
    case 'request':
      return { request: decodeRequest(spec.requestData), made: null, stored: null }
    case 'stored key': {
      const stored = await openStoredKey(service, order, spec.containerId)
      return stored === null ? null : { request: createRequest(spec.subjectDn, stored.key), made: null, stored }
    }
    case 'new key': {
      const { privateKey } = await generateKeyPair(spec.algorithm, spec.bits)
      const made = newSecret(spec, 'private_key', 'private', privateKey, {
        algorithm: spec.algorithm,
        bitLength: spec.bits,
      })
      return { request: createRequest(spec.subjectDn, createPrivateKey(privateKey)), made, stored: null }
    }
  }
}

/** A new request. Clients check only subject alternative names, so a host in the common name is added to them. */
function createRequest(subjectDn: string, key: KeyObject): CertificateRequest {
  const subject = parseDistinguishedName(subjectDn)
  const commonName = subject.flat().find(({ type }) => type === COMMON_NAME)?.value
  return readCertificateRequest(
    writeCertificateRequest(subject, key, commonName === undefined ? [] : hostName(commonName)),
  )
}

const COMMON_NAME = '2.5.4.3'

function hostName(commonName: string): GeneralName[] {
  if (isIP(commonName) !== 0) return [{ kind: 'ip', value: commonName }]
  return isDnsName(commonName) ? [{ kind: 'dns', value: commonName }] : []
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

/** The container of an order: what a listener needs to terminate TLS, as far as this service has it. */
function issuedOutcome(
  order: Order,
  spec: CertificateSpec,
  key: OrderedKey,
  { caId, certificate, intermediates, serial, subjectDn, notAfter }: IssuedCertificate,
): OrderOutcome {
  const parts = key.stored?.parts ?? []
  const copies = parts
    .filter(({ foreign }) => foreign)
    .map(({ role, payload, contentType }) => ({
      ...newSecret(spec, role, role === 'private_key' ? 'private' : 'passphrase', payload),
      contentType,
    }))
  return {
    kind: 'made',
    secrets: [
      newSecret(spec, 'certificate', 'certificate', certificate),
      ...(intermediates === '' ? [] : [newSecret(spec, 'intermediates', 'certificate', intermediates)]),
      ...(key.made === null ? [] : [key.made]),
      ...copies,
    ],
    container: { name: spec.name, type: 'certificate' },
    references: parts.filter(({ foreign }) => !foreign).map(({ role, secretId }) => ({ role, secretId })),
    subStatus: 'cert_generated',
    subStatusMessage: 'The certificate has been issued.',
    alsoStore: async trx => {
      await execute(
        trx,
        sql`INSERT INTO issued_certificate (ca_id, serial, subject_dn, not_after, order_id)
            VALUES (${caId}, ${serial}, ${subjectDn}, ${notAfter}, ${order.id})`,
      )
      await recordAudit(trx, actorOf(order), {
        action: 'certificate.issue',
        outcome: 'success',
        targetType: 'ca',
        targetId: caId,
        detail: { serial, subject_dn: subjectDn, order: order.id },
      })
    },
  }
}
