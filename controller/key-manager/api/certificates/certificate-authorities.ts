import * as z from 'zod'
import { encodePem } from '../../../../x509/encoding/pem.js'
import type { Answer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { execute, many, maybeOne, one } from '../../../database/query.js'
import { and, type Fragment, identifier, sql } from '../../../database/sql.js'
import { inTransaction, sqlState } from '../../../database/transaction.js'
import { ApiError, badRequest, conflict, forbidden, notFound } from '../../../http/errors.js'
import { acceptedType } from '../../certificate-authorities/accept.js'
import { LIVE_AUTHORITY, storeAuthority } from '../../certificate-authorities/authority.js'
import { AUTHORITY_JSON } from '../../certificate-authorities/authority-json.js'
import { findBackend } from '../../certificate-authorities/backends.js'
import { asBadRequest, parseSubjectDn } from '../../certificate-authorities/bad-request.js'
import { deleteAuthorities } from '../../certificate-authorities/delete-authorities.js'
import {
  type FoundAuthority,
  findAuthority,
  requireAuthority,
  requireNamedAuthority,
} from '../../certificate-authorities/find-authority.js'
import { addToList, deleteListed, prefer, removeFromList } from '../../certificate-authorities/project-list.js'
import { idInReference, missing } from '../../ids.js'
import { filledText, queryText, textUpTo } from '../../input.js'
import { isPermitted, quotaReached } from '../../rights.js'
import { type ApiService, actorIn, type Call, route } from '../dialect.js'
import { filter, PAGE_PARAMETERS, pageJson, parsePage, readPage } from '../paging.js'

const newSubordinate = z
  .strictObject({
    name: filledText(255),
    subject_dn: filledText(),
    parent_ca_ref: filledText(),
    description: textUpTo(255).nullish(),
  })
  .meta({ title: 'certificate authority' })

const PEM_FILE = 'application/x-pem-file'
const CRL_TYPE = 'application/pkix-crl'

const FILTERS = ['name', 'plugin_name', 'plugin_ca_id'] as const
const LIST_PARAMETERS = [...PAGE_PARAMETERS, ...FILTERS.map(name => filter(name, 'A LIKE pattern with % and _.'))]

const base = { group: 'certificate authorities', status: 200 } as const
const named = objectOf({ ca_ref: ref('reference') })

export const certificateAuthorityRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas',
    right: 'cas read',
    summary: 'List the certificate authorities that the project may use',
    parameters: LIST_PARAMETERS,
    answer: ref('cas'),
    handle: (service, call) => listAuthorities(service, call, 'of the project'),
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/cas',
    right: 'ca create',
    summary: 'Create a subordinate certificate authority of the project',
    status: 201,
    request: newSubordinate,
    answer: named,
    handle: createSubordinate,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/all',
    right: 'cas of all',
    summary: 'List all certificate authorities',
    parameters: LIST_PARAMETERS,
    answer: ref('cas'),
    handle: (service, call) => listAuthorities(service, call, 'all'),
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/preferred',
    right: 'cas read',
    summary: 'Show the preferred certificate authority of the project',
    answer: named,
    handle: showPreferred,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/global-preferred',
    right: 'global preferred ca',
    summary: 'Show the globally preferred certificate authority',
    answer: named,
    handle: showGlobalPreferred,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/cas/unset-global-preferred',
    right: 'global preferred ca',
    summary: 'Clear the globally preferred certificate authority',
    status: 204,
    handle: unsetGlobalPreferred,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/:id',
    right: 'cas read',
    summary: 'Show a certificate authority',
    answer: ref('ca'),
    handle: showAuthority,
  }),
  route({
    ...base,
    method: 'DELETE',
    path: '/v1/cas/:id',
    right: 'ca delete',
    summary: 'Delete a certificate authority of the project',
    status: 204,
    handle: deleteAuthority,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/:id/cacert',
    right: 'cas read',
    summary: 'Read the certificate of a certificate authority',
    answer: { type: 'string' },
    answerType: PEM_FILE,
    handle: sendCertificate,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/:id/intermediates',
    right: 'cas read',
    summary: 'Read the certificate chain of a certificate authority, up to its root',
    answer: { type: 'string' },
    answerType: 'application/pkcs7-mime',
    handle: sendChain,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/:id/crl',
    right: 'cas read',
    summary: 'Read the revocation list of a certificate authority',
    answer: { type: 'string' },
    answerType: CRL_TYPE,
    handle: sendRevocationList,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/cas/:id/projects',
    right: 'ca projects read',
    summary: 'List the projects that have a certificate authority on their list',
    answer: objectOf({ projects: { type: 'array', items: { type: 'string' } } }),
    handle: listProjects,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/cas/:id/add-to-project',
    right: 'ca projects write',
    summary: 'Add a certificate authority to the list of the project',
    status: 204,
    handle: (service, call) => changeList(service, call, addToList),
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/cas/:id/remove-from-project',
    right: 'ca projects write',
    summary: 'Remove a certificate authority from the list of the project',
    status: 204,
    handle: (service, call) => changeList(service, call, removeFromList),
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/cas/:id/set-preferred',
    right: 'ca preferred write',
    summary: 'Prefer a certificate authority for the project',
    status: 204,
    handle: (service, call) => changeList(service, call, prefer),
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/cas/:id/set-global-preferred',
    right: 'global preferred ca',
    summary: 'Prefer a certificate authority for all projects',
    status: 204,
    handle: setGlobalPreferred,
  }),
]

const authorityUrl = (call: Call, id: string): string => `${call.base}/v1/cas/${id}`

async function listAuthorities(
  { database, config }: ApiService,
  call: Call,
  which: 'of the project' | 'all',
): Promise<Answer> {
  const { projectId } = call.caller
  const visible =
    which === 'all'
      ? []
      : [
          sql`(a.project_id = ${projectId}
               OR CASE WHEN EXISTS (SELECT FROM project_certificate_authority q WHERE q.project_id = ${projectId})
                       THEN EXISTS (SELECT FROM project_certificate_authority q
                                     WHERE q.project_id = ${projectId} AND q.ca_id = a.id)
                       ELSE a.project_id IS NULL END)`,
        ]
  const filters = FILTERS.flatMap(name => {
    const pattern = queryText(call.query, name)
    // Without an escape character, every pattern is valid.
    return pattern === null ? [] : [sql`${identifier('a', name)} LIKE ${pattern} ESCAPE ''`]
  })
  const page = parsePage(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: 'certificate_authority a',
      where: and([LIVE_AUTHORITY, ...visible, ...filters]),
      order: sql`a.created_at, a.id`,
      json: sql`to_json(base.url || '/v1/cas/' || a.id)::text`,
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/cas${which === 'all' ? '/all' : ''}`
  return { status: 200, json: pageJson('cas', items, total, { page, query: call.query, url }) }
}

async function createSubordinate(service: ApiService, call: Call<z.output<typeof newSubordinate>>): Promise<Answer> {
  const body = await call.body()
  const { projectId, userId: creatorId } = call.caller
  const subject = parseSubjectDn(body.subject_dn)
  const parent = await requireNamedAuthority(service.database, projectId, idInReference(body.parent_ca_ref) ?? '')
  const { createSubordinate: create } = findBackend(service.caBackends, parent.pluginName)
  if (create === null) throw badRequest('The parent CA cannot issue subordinate CAs.')
  await requireQuota(service, projectId)
  const { name, description = null } = body
  const made = await create({ projectId, creatorId, parentId: parent.id, name, description, subject }).catch(
    asBadRequest,
  )
  await storeAuthority(service, made, actorIn(call))
  const ref = authorityUrl(call, made.id)
  return { status: 201, json: JSON.stringify({ ca_ref: ref }), headers: { Location: ref } }
}

/** Avoids generating a key in vain. Storing the CA checks the quota again. @throws ApiError 403 */
async function requireQuota({ database, config }: ApiService, projectId: string): Promise<void> {
  const { fits } = await one(
    database,
    sql<{ fits: boolean }>`SELECT quota_allows(${projectId}::text, 'cas', ${config.quota.cas}) AS fits`,
  )
  if (!fits) throw quotaReached('cas')
}

/** @throws ApiError 405 for an action's path, which the route of a CA matches too */
function refuseActionPath(call: Call): void {
  if (call.params.id === 'unset-global-preferred') throw new ApiError(405, 'Only POST is allowed here.')
}

async function showAuthority(service: ApiService, call: Call): Promise<Answer> {
  refuseActionPath(call)
  return { status: 200, json: await readColumn(service, call, AUTHORITY_JSON) }
}

/**
 * The CA in the path, for a read: whoever may list the CAs of all projects may read each.
 * @throws ApiError 404, 403
 */
async function requireReadable({ database, config }: ApiService, { caller, params }: Call): Promise<FoundAuthority> {
  const require = isPermitted(config.policy, 'ca of another project', caller, null) ? findAuthority : requireAuthority
  return require(database, caller.projectId, params.id)
}

/** Reads one column of the CA in the path. @throws ApiError 404, 403 */
async function readColumn(service: ApiService, call: Call, column: Fragment): Promise<string> {
  const { id } = await requireReadable(service, call)
  const found = await maybeOne(
    service.database,
    sql<{ value: string | null }>`
      SELECT ${column} AS value FROM certificate_authority a CROSS JOIN (SELECT ${call.base}::text AS url) base
       CROSS JOIN (SELECT ${call.caller.projectId}::text AS project) asking WHERE a.id = ${id}`,
  )
  if (found === undefined) throw missing('Certificate authority')
  if (found.value === null) throw notFound('An external certificate authority has no certificate here.')
  return found.value
}

const sent = (type: string, body: string | Buffer): Answer => ({
  status: 200,
  bytes: Buffer.from(body),
  headers: { 'Content-Type': type },
})

async function sendCertificate(service: ApiService, call: Call): Promise<Answer> {
  const type = acceptedType(call.header('Accept'), [PEM_FILE, 'text/plain']) ?? PEM_FILE
  return sent(type, await readColumn(service, call, sql`a.certificate`))
}

/** Clients that ask for neither PEM nor text get PKCS#7, for compatibility. */
async function sendChain(service: ApiService, call: Call): Promise<Answer> {
  const type = acceptedType(call.header('Accept'), [PEM_FILE, 'text/plain'])
  return type === null
    ? sent('application/pkcs7-mime', await readColumn(service, call, sql`a.pkcs7`))
    : sent(type, await readColumn(service, call, sql`a.chain`))
}

async function sendRevocationList(service: ApiService, call: Call): Promise<Answer> {
  const { id, pluginName } = await requireReadable(service, call)
  const crl = await findBackend(service.caBackends, pluginName).revocationList(id)
  if (crl === null) throw notFound('The certificate authority has no revocation list.')
  const type = acceptedType(call.header('Accept'), [CRL_TYPE, PEM_FILE, 'text/plain'])
  return type === null || type === CRL_TYPE ? sent(CRL_TYPE, crl) : sent(type, encodePem('X509 CRL', crl))
}

async function showPreferred({ database }: ApiService, call: Call): Promise<Answer> {
  const preferred = await maybeOne(
    database,
    sql<{ id: string }>`
      SELECT a.id FROM certificate_authority a
        LEFT JOIN project_certificate_authority p
          ON p.ca_id = a.id AND p.project_id = ${call.caller.projectId} AND p.preferred
       WHERE (p.preferred OR a.global_preferred) AND ${LIVE_AUTHORITY} ORDER BY p.preferred NULLS LAST LIMIT 1`,
  )
  return preferredAnswer(call, preferred)
}

async function showGlobalPreferred({ database }: ApiService, call: Call): Promise<Answer> {
  const preferred = await maybeOne(
    database,
    sql<{ id: string }>`SELECT a.id FROM certificate_authority a WHERE a.global_preferred AND ${LIVE_AUTHORITY}`,
  )
  return preferredAnswer(call, preferred)
}

function preferredAnswer(call: Call, found: { id: string } | undefined): Answer {
  if (found === undefined) throw notFound('No certificate authority is preferred.')
  return { status: 200, json: JSON.stringify({ ca_ref: authorityUrl(call, found.id) }) }
}

const NONE_PREFERRED = sql`UPDATE certificate_authority SET global_preferred = false WHERE global_preferred`

async function setGlobalPreferred({ database }: ApiService, call: Call): Promise<Answer> {
  const { id, ownerId } = await requireAuthority(database, call.caller.projectId, call.params.id)
  if (ownerId !== null) throw badRequest('A certificate authority of a project cannot be the global preference.')
  await inTransaction(database, async trx => {
    // Serialises changes: two must never be preferred at once.
    await execute(trx, sql`SELECT 1 FROM certificate_authority WHERE project_id IS NULL ORDER BY id FOR NO KEY UPDATE`)
    await execute(trx, NONE_PREFERRED)
    await execute(trx, sql`UPDATE certificate_authority SET global_preferred = true WHERE id = ${id}`)
  })
  return { status: 204 }
}

async function unsetGlobalPreferred({ database }: ApiService): Promise<Answer> {
  await execute(database, NONE_PREFERRED)
  return { status: 204 }
}

async function listProjects(service: ApiService, call: Call): Promise<Answer> {
  const { id } = await requireReadable(service, call)
  const listing = await many(
    service.database,
    sql<{ projectId: string }>`
      SELECT project_id AS "projectId" FROM project_certificate_authority
       WHERE ca_id = ${id} ORDER BY created_at, project_id`,
  )
  return { status: 200, json: JSON.stringify({ projects: listing.map(({ projectId }) => projectId) }) }
}

async function changeList({ database }: ApiService, call: Call, change: typeof addToList): Promise<Answer> {
  const { projectId } = call.caller
  const { id } = await requireAuthority(database, projectId, call.params.id)
  await change(database, projectId, id)
  return { status: 204 }
}

async function deleteAuthority({ database }: ApiService, call: Call): Promise<Answer> {
  refuseActionPath(call)
  const { projectId } = call.caller
  const { id, ownerId } = await requireAuthority(database, projectId, call.params.id)
  if (ownerId === null) throw forbidden('Only certificate authorities of the project can be deleted.')
  const deletion = deleteListed(database, projectId, id, trx => deleteAuthorities(trx, { id }, actorIn(call)))
  await deletion.catch(error => {
    if (sqlState(error) === '23503')
      throw conflict('The certificate authority has subordinate certificate authorities; delete these first.')
    throw error
  })
  return { status: 204 }
}
