import { X509Certificate } from 'node:crypto'
import * as z from 'zod'
import { parseSerialText } from '../../../../x509/certificate.js'
import { isRevocationReason, type RevocationReason } from '../../../../x509/revocation-list.js'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../../api/answer.js'
import { findBackend } from '../../certificate-authorities/backends.js'
import { ACME_PREFIX, type AcmeService, actorIn, type Call, openRoute, route } from '../dialect.js'
import { AcmeProblem, malformed } from '../problem.js'
import { payloadAs, requireAccount, requireEmpty, requireFound } from '../requests.js'
import { parseCertificateId, renewalWindow } from '../rules/certificate-id.js'
import { orderStatus } from '../rules/state.js'
import { thumbprintOf } from '../signatures/jws.js'
import { findByCertificateId, findBySerial, type IssuedRecord, readChain } from '../store/certificates.js'
import { findOrder, provesAll } from '../store/orders.js'

const base = { group: 'certificates', status: 200 } as const

export const certificateRoutes = [
  route({
    ...base,
    method: 'POST',
    path: `${ACME_PREFIX}certificate/:id`,
    right: 'account',
    summary: 'Read the certificate of an order, with the CAs above it',
    handle: sendCertificate,
  }),
  route({
    ...base,
    method: 'POST',
    path: `${ACME_PREFIX}revoke-cert`,
    right: 'either',
    summary: 'Revoke a certificate',
    handle: revokeCertificate,
  }),
  openRoute({
    ...base,
    method: 'GET',
    path: `${ACME_PREFIX}renewal-info/:id`,
    summary: 'When to renew a certificate',
    handle: showRenewal,
  }),
]

/** The id is that of the order. */
async function sendCertificate(service: AcmeService, call: Call): Promise<Answer> {
  const account = requireAccount(call)
  requireEmpty(call)
  const order = requireFound(await findOrder(service.database, call.params.id ?? ''), account, 'certificate')
  const { containerId, secretOrderId } = order
  const isIssued = orderStatus(order, new Date()) === 'valid' && containerId !== null && secretOrderId !== null
  const chain = isIssued ? await readChain(service, { containerId, secretOrderId }) : null
  if (chain === null) throw new AcmeProblem('malformed', 'There is no such certificate.', { status: 404 })
  return { status: 200, bytes: Buffer.from(chain), headers: { 'Content-Type': 'application/pem-certificate-chain' } }
}

/** The reasons that a holder may give (RFC 5280, 5.3.1), by their codes. */
const REASONS: Readonly<Record<number, RevocationReason>> = {
  0: 'unspecified',
  1: 'keyCompromise',
  3: 'affiliationChanged',
  4: 'superseded',
  5: 'cessationOfOperation',
}

const revocation = z.object({ certificate: z.string().regex(/^[A-Za-z0-9_-]+$/), reason: z.int().optional() })

async function revokeCertificate(service: AcmeService, call: Call): Promise<Answer> {
  const { certificate, reason: code } = payloadAs(call, revocation)
  const { issued, holderThumbprint } = await findIssued(service, certificate)
  if (!(await mayRevoke(service, call, issued, holderThumbprint))) {
    throw new AcmeProblem(
      'unauthorized',
      'Only the account that ordered a certificate, one that has proven its names, or its own key revokes it.',
    )
  }
  const reason = REASONS[code ?? 0]
  if (reason === undefined || !isRevocationReason(reason)) {
    throw new AcmeProblem('badRevocationReason', `The reason must be one of ${Object.keys(REASONS).join(', ')}.`)
  }
  const outcome = await findBackend(service.caBackends, issued.pluginName).revoke(
    issued.caId,
    issued.serial,
    reason,
    actorIn(call),
  )
  if (outcome === 'already revoked') throw new AcmeProblem('alreadyRevoked', 'The certificate was revoked before.')
  return { ...NO_CONTENT, status: 200 }
}

/** Finds a certificate that one of our CAs has signed. @throws AcmeProblem malformed, or 404 */
async function findIssued(
  { database }: AcmeService,
  encoded: string,
): Promise<{ issued: IssuedRecord; holderThumbprint: string }> {
  const certificate = readCertificate(encoded)
  const serial = parseSerialText(certificate.serialNumber)
  const candidates = serial === null ? [] : await findBySerial(database, serial)
  const issued = candidates.find(({ caCertificate }) =>
    certificate.verify(new X509Certificate(caCertificate).publicKey),
  )
  if (issued === undefined)
    throw new AcmeProblem('malformed', 'No certificate authority here issued this certificate.', { status: 404 })
  return { issued, holderThumbprint: await thumbprintOf(certificate.publicKey.export({ format: 'jwk' })) }
}

function readCertificate(encoded: string): X509Certificate {
  try {
    return new X509Certificate(Buffer.from(encoded, 'base64url'))
  } catch {
    throw malformed('The certificate cannot be read: send the base64url of its DER.')
  }
}

/** Names are proven within a project: another one that has proven the same names has no say. */
async function mayRevoke(
  service: AcmeService,
  { caller }: Call,
  issued: IssuedRecord,
  holderThumbprint: string,
): Promise<boolean> {
  const { account, thumbprint } = caller
  if (account === null) return thumbprint === holderThumbprint
  if (issued.accountId === account.id) return true
  return (
    issued.projectId === account.projectId &&
    issued.identifiers !== null &&
    (await provesAll(service.database, account.id, issued.identifiers))
  )
}

/** How long clients wait before they look again (RFC 9773, 4.3). */
const RENEWAL_CHECK = { 'Retry-After': '21600' }

async function showRenewal(
  { database }: AcmeService,
  call: { params: Readonly<Record<string, string>> },
): Promise<Answer> {
  const id = parseCertificateId(call.params.id ?? '')
  const found = id === null ? null : await findByCertificateId(database, id)
  if (found === null) throw new AcmeProblem('malformed', 'There is no such certificate.', { status: 404 })
  const { start, end } = renewalWindow(found)
  const suggestedWindow = { start: start.toISOString(), end: end.toISOString() }
  return { ...jsonAnswer(200, { suggestedWindow }), headers: RENEWAL_CHECK }
}
