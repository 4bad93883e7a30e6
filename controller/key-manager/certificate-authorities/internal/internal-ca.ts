import { randomSerial, readCaCertificate, serialText, writeCertificate } from '../../../../x509/certificate.js'
import type { CertificateRequest } from '../../../../x509/certificate-request.js'
import { type Asn1, writeDer } from '../../../../x509/encoding/asn1.js'
import { formatDistinguishedName, parseDistinguishedName } from '../../../../x509/encoding/distinguished-name.js'
import { encodeName } from '../../../../x509/encoding/name-encoding.js'
import { certificatesIn, encodePem } from '../../../../x509/encoding/pem.js'
import { InvalidX509 } from '../../../../x509/invalid-x509.js'
import type { Database } from '../../../database/connection.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { ApiError } from '../../../http/errors.js'
import { CryptoUnavailable } from '../../crypto/backend.js'
import { newId } from '../../ids.js'
import { storeAuthority } from '../authority.js'
import type { CaBackend, IssueOutcome, NewAuthority, RequestedValidity, SubordinateRequest } from '../ca-backend.js'
import { crlUrlOf } from '../crl-url.js'
import { makeAuthority } from './authority-certificate.js'
import { projectConstraints } from './name-constraints.js'
import { namePolicyRefusal } from './name-policy.js'
import type { InternalCaService } from './options.js'
import { endEntityExtensions } from './profiles.js'
import { currentRevocationList, revokeCertificate } from './revocation.js'
import { openAuthority } from './signing-authority.js'
import { validityWithin } from './validity.js'

const NAME = 'internal'
const ROOT = 'root'
/** Levels of CAs allowed below the root. */
const ROOT_PATH_LENGTH = 5

/**
 * Krater's own CA: one root for all projects, and the CAs that projects create below it. Their keys are
 * sealed like secrets.
 */
export const createInternalCa = (service: InternalCaService): CaBackend => ({
  name: NAME,
  takesSteps: false,
  renewalInfo: null,
  sweep: null,
  prepare: () => ensureRoot(service),
  issue: (caId, projectId, request, _signal, { validity }) => issue(service, caId, projectId, request, validity),
  createSubordinate: request => createSubordinate(service, request),
  revocationList: caId => currentRevocationList(service, caId),
  revoke: (caId, serial, reason, actor) => revokeCertificate(service, { caId, serial }, reason, actor),
})

/** Creates the root at the first start. If several processes try at once, one stores its root and the others use it. */
async function ensureRoot(service: InternalCaService): Promise<void> {
  const { database, config } = service
  if ((await findByName(database, ROOT)) !== undefined) return
  const subject = parseDistinguishedName(config.certificate_authority.root_subject_dn)
  const made = await makeAuthority(encodeName(subject), ROOT_PATH_LENGTH, config.certificate_authority, null)
  const authority: NewAuthority = {
    id: newId(),
    projectId: null,
    creatorId: null,
    parentId: null,
    pluginName: NAME,
    pluginCaId: ROOT,
    name: 'Internal root CA',
    description: 'The certificate authority of this key manager',
    subjectDn: formatDistinguishedName(subject),
    certificate: made.certificate,
    chain: made.certificate,
    expiration: made.notAfter,
    serial: made.serial,
    key: made.key,
  }
  await storeAuthority(service, authority, { userId: null, projectId: null, requestId: null, remoteAddress: null })
}

/** The CA that signs for a project: with project_cas, the project's own CA instead of the root. */
async function signerFor(service: InternalCaService, caId: string, projectId: string): Promise<string> {
  if (!service.config.certificate_authority.project_cas) return caId
  const named = await maybeOne(
    service.database,
    sql<{ pluginCaId: string }>`SELECT plugin_ca_id AS "pluginCaId" FROM certificate_authority WHERE id = ${caId}`,
  )
  return named?.pluginCaId === ROOT ? projectAuthority(service, caId, projectId) : caId
}

/** The CA of a project, created for its first certificate. If several processes try at once, one stores its CA. */
async function projectAuthority(service: InternalCaService, rootId: string, projectId: string): Promise<string> {
  const pluginCaId = `project ${projectId}`
  const known = await findByName(service.database, pluginCaId)
  if (known !== undefined) return known
  const made = await makeSubordinate(
    service,
    {
      projectId,
      creatorId: null,
      parentId: rootId,
      name: 'Project CA',
      description: 'The certificate authority of this project',
      subject: [[{ type: '2.5.4.3', value: `Project ${projectId}`.slice(0, 64) }]],
    },
    [projectConstraints(service.config.certificate_authority, projectId)],
  )
  const actor = { userId: null, projectId, requestId: null, remoteAddress: null }
  await storeAuthority(service, { ...made, pluginCaId }, actor)
  return (await findByName(service.database, pluginCaId)) ?? made.id
}

/** The id of a CA of this back end. */
async function findByName(database: Database, pluginCaId: string): Promise<string | undefined> {
  const found = await maybeOne(
    database,
    sql<{ id: string }>`
      SELECT id FROM certificate_authority WHERE plugin_name = ${NAME} AND plugin_ca_id = ${pluginCaId}`,
  )
  return found?.id
}

async function issue(
  service: InternalCaService,
  caId: string,
  projectId: string,
  request: CertificateRequest,
  requested?: RequestedValidity,
): Promise<IssueOutcome> {
  try {
    const refusal = namePolicyRefusal(service.config.certificate_authority, projectId, request)
    if (refusal !== null) return { kind: 'rejected', reason: refusal }
    const authority = await openAuthority(service, await signerFor(service, caId, projectId))
    if (authority === null) return { kind: 'rejected', reason: 'The certificate authority does not exist.' }
    const { own, key, chain } = authority
    const now = new Date()
    if (own.notAfter <= now)
      return { kind: 'rejected', reason: 'The certificate of the certificate authority has expired.' }
    if (authority.revoked)
      return { kind: 'rejected', reason: 'The certificate of the certificate authority was revoked.' }
    const serial = randomSerial()
    const validity = validityWithin(now, service.config.certificate_authority.certificate_days, own, requested)
    if (validity.notAfter <= validity.notBefore)
      return { kind: 'rejected', reason: 'The certificate would end before it begins.' }
    const crlUrl = crlUrlOf(service.config, authority.id)
    const der = writeCertificate(
      {
        ...validity,
        serial,
        issuer: own.subject,
        subject: request.encodedSubject,
        publicKey: request.publicKey,
        extensions: endEntityExtensions(request, { keyIdentifier: own.keyIdentifier, crlUrl }),
      },
      key,
    )
    const issued = {
      caId: authority.id,
      certificate: encodePem('CERTIFICATE', der),
      // Without the root at the end, which clients already have.
      intermediates: certificatesIn(chain)
        .slice(0, -1)
        .map(each => encodePem('CERTIFICATE', each))
        .join(''),
      serial: serialText(serial),
      subjectDn: formatDistinguishedName(request.subject),
      notAfter: validity.notAfter,
    }
    return { kind: 'issued', issued }
  } catch (error) {
    // The quota of CAs is used up, or no CA can be created for this project; the reason goes to the tenant.
    if (error instanceof ApiError || error instanceof InvalidX509) return { kind: 'rejected', reason: error.message }
    if (!(error instanceof CryptoUnavailable)) throw error
    return { kind: 'unavailable', message: 'The key of the certificate authority is temporarily unavailable.' }
  }
}

async function createSubordinate(service: InternalCaService, request: SubordinateRequest): Promise<NewAuthority> {
  const parentId = await signerFor(service, request.parentId, request.projectId)
  return makeSubordinate(service, { ...request, parentId })
}

async function makeSubordinate(
  service: InternalCaService,
  request: Omit<SubordinateRequest, 'creatorId'> & Pick<NewAuthority, 'creatorId'>,
  constraints: readonly Asn1[] = [],
): Promise<NewAuthority> {
  const { config } = service
  const parent = await openAuthority(service, request.parentId)
  if (parent === null) throw new InvalidX509('The parent CA does not exist.')
  if (parent.own.pathLength < 1) throw new InvalidX509('The parent CA allows no CA below it.')
  if (parent.own.notAfter <= new Date()) throw new InvalidX509('The certificate of the parent CA has expired.')
  if (parent.revoked) throw new InvalidX509('The certificate of the parent CA was revoked.')
  const subject = encodeName(request.subject)
  const above = parent.chain.split(/(?=-----BEGIN )/).map(pem => readCaCertificate(pem).subject)
  if (above.some(each => writeDer(each).equals(writeDer(subject)))) {
    throw new InvalidX509('The subject DN is already that of a CA above the new one.')
  }
  const issuer = { ...parent, crlUrl: crlUrlOf(config, parent.id) }
  const made = await makeAuthority(
    subject,
    parent.own.pathLength - 1,
    config.certificate_authority,
    issuer,
    constraints,
  )
  const id = newId()
  return {
    ...{ id, pluginName: NAME, pluginCaId: id, key: made.key, serial: made.serial, expiration: made.notAfter },
    projectId: request.projectId,
    creatorId: request.creatorId,
    parentId: request.parentId,
    name: request.name,
    description: request.description,
    subjectDn: formatDistinguishedName(request.subject),
    certificate: made.certificate,
    chain: made.certificate + parent.chain,
  }
}
