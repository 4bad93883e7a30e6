import { createPrivateKey, type KeyObject } from 'node:crypto'
import { isIP } from 'node:net'
import { execute } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { ApiError } from '../../http/errors.js'
import {
  type CertificateRequest,
  readCertificateRequest,
  writeCertificateRequest,
} from '../../x509/certificate-request.js'
import { parseDistinguishedName } from '../../x509/encoding/distinguished-name.js'
import { type GeneralName, isDnsName } from '../../x509/encoding/general-names.js'
import { InvalidX509 } from '../../x509/invalid-x509.js'
import { recordAudit } from '../audit/record.js'
import { CryptoUnavailable } from '../crypto/backend.js'
import { generateKeyPair } from '../crypto/key-pair.js'
import { actorOf } from '../orders/order.js'
import type { MadeSecret, Order, OrderExecutor, OrderOutcome } from '../orders/outcome.js'
import { backendOf } from './backends.js'
import type { CaBackend, CaService, IssuedCertificate } from './ca-backend.js'
import { type CertificateWish, certificateWishOf, decodeRequest } from './certificate-meta.js'
import { defaultAuthority, requireNamedAuthority } from './find-authority.js'
import { openStoredKey, type StoredKey } from './stored-key.js'

/** Until a CA that is away is asked again. */
const RETRY_SECONDS = 300

/** The key that a certificate is for, as far as this service has it. */
type OrderedKey = { request: CertificateRequest; made: MadeSecret | null; stored: StoredKey | null }

/** Carries out orders of certificates: makes or reads the key when it is to be had here, writes the request, and asks the CA. */
export function certificateOrderExecutor(service: CaService, backends: readonly CaBackend[]): OrderExecutor {
  return async (order, signal) => {
    try {
      const wish = certificateWishOf(order.meta)
      const authority = await authorityFor(service, order, wish.caId)
      if (authority === null) return later('There is no certificate authority yet.')
      const key = await keyFor(service, order, wish)
      if (key === null) {
        return { ...invalid('The private key may not be used any more.'), statusCode: '403' }
      }
      const outcome = await backendOf(backends, authority.pluginName).issue(
        authority.id,
        order.projectId,
        key.request,
        signal,
      )
      switch (outcome.kind) {
        case 'issued':
          return made(order, wish, key, outcome.issued)
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
          return later(outcome.message)
      }
    } catch (error) {
      if (error instanceof InvalidX509) return invalid(error.message)
      if (error instanceof ApiError && error.status === 400) return invalid(error.message)
      if (error instanceof ApiError && error.status === 403) return { ...invalid(error.message), statusCode: '403' }
      if (error instanceof CryptoUnavailable) return later('Keys cannot be used at the moment.')
      throw error
    }
  }
}

const invalid = (reason: string) =>
  ({ kind: 'failed', statusCode: '400', reason, subStatus: 'cert_data_invalid' }) satisfies OrderOutcome

const later = (subStatusMessage: string): OrderOutcome => ({
  kind: 'later',
  seconds: RETRY_SECONDS,
  subStatus: 'cert_ca_unavail_for_issue',
  subStatusMessage,
})

const authorityFor = ({ database }: CaService, { projectId }: Order, caId: string | null) =>
  caId === null ? defaultAuthority(database, projectId) : requireNamedAuthority(database, projectId, caId)

/** Null when the creator of the order may not use the stored key any more. @throws InvalidX509 */
async function keyFor(service: CaService, order: Order, wish: CertificateWish): Promise<OrderedKey | null> {
  switch (wish.form) {
    case 'request':
      return { request: decodeRequest(wish.requestData), made: null, stored: null }
    case 'stored key': {
      const stored = await openStoredKey(service, order, wish.containerId)
      return stored === null ? null : { request: requestFor(wish.subjectDn, stored.key), made: null, stored }
    }
    case 'new key': {
      const { privateKey } = await generateKeyPair(wish.algorithm, wish.bits)
      const made = secretOf(wish, 'private_key', 'private', privateKey, {
        algorithm: wish.algorithm,
        bitLength: wish.bits,
      })
      return { request: requestFor(wish.subjectDn, createPrivateKey(privateKey)), made, stored: null }
    }
  }
}

/** A request of ours; today's clients look for a server's name among the alternative names only, so it goes there as well. */
function requestFor(subjectDn: string, key: KeyObject): CertificateRequest {
  const subject = parseDistinguishedName(subjectDn)
  const commonName = subject.flat().find(({ type }) => type === COMMON_NAME)?.value
  return readCertificateRequest(
    writeCertificateRequest(subject, key, commonName === undefined ? [] : hostIn(commonName)),
  )
}

const COMMON_NAME = '2.5.4.3'

function hostIn(commonName: string): GeneralName[] {
  if (isIP(commonName) !== 0) return [{ kind: 'ip', value: commonName }]
  return isDnsName(commonName) ? [{ kind: 'dns', value: commonName }] : []
}

function secretOf(
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

/** The container of an order: what a listener that terminates TLS needs, as far as this service has it. */
function made(
  order: Order,
  wish: CertificateWish,
  key: OrderedKey,
  { caId, certificate, intermediates, serial, subjectDn, notAfter }: IssuedCertificate,
): OrderOutcome {
  const parts = key.stored?.parts ?? []
  const copies = parts
    .filter(({ foreign }) => foreign)
    .map(({ role, payload, contentType }) => ({
      ...secretOf(wish, role, role === 'private_key' ? 'private' : 'passphrase', payload),
      contentType,
    }))
  return {
    kind: 'made',
    secrets: [
      secretOf(wish, 'certificate', 'certificate', certificate),
      ...(intermediates === '' ? [] : [secretOf(wish, 'intermediates', 'certificate', intermediates)]),
      ...(key.made === null ? [] : [key.made]),
      ...copies,
    ],
    container: { name: wish.name, type: 'certificate' },
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
