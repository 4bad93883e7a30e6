import * as z from 'zod'
import type { Answer } from '../../../api/answer.js'
import { objectOf, ref } from '../../../api/schema.js'
import { sql } from '../../../database/sql.js'
import { CERTIFICATE_JSON, findCertificate, LIVE_CERTIFICATE } from '../../renewals/certificate.js'
import { askForRenewal, changeRenewal } from '../../renewals/change-renewal.js'
import { EVENT_JSON } from '../../renewals/events.js'
import { rollBack } from '../../renewals/rollback.js'
import { type AllowOn, type ApiService, type Call, route } from '../dialect.js'
import { PAGE_PARAMETERS, pageJson, parsePage, readPage } from '../paging.js'

const boolean = z.boolean('must be true or false').optional()

const renewalChange = z.strictObject({ renew: boolean, renew_key: boolean }).meta({ title: 'certificate' })

const base = { group: 'certificates', status: 200 } as const

export const certificateRoutes = [
  route({
    ...base,
    method: 'GET',
    path: '/v1/certificates',
    right: 'certificates list',
    summary: 'List the certificates that orders of the project issued, those that end first in front',
    parameters: PAGE_PARAMETERS,
    answer: ref('certificates'),
    handle: listCertificates,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/certificates/:id',
    right: 'certificate show',
    summary: 'Show the certificate in a container, with its renewal',
    answer: ref('certificate'),
    handle: showCertificate,
  }),
  route({
    ...base,
    method: 'PATCH',
    path: '/v1/certificates/:id',
    right: 'certificate change',
    summary: 'Change whether a certificate is renewed, and with a new key or the same one',
    request: renewalChange,
    answer: ref('certificate'),
    handle: changeCertificate,
  }),
  route({
    ...base,
    method: 'GET',
    path: '/v1/certificates/:id/events',
    right: 'certificate show',
    summary: 'List the renewals, failures and notices of a certificate, newest first',
    parameters: PAGE_PARAMETERS,
    answer: ref('certificate_events'),
    handle: listEvents,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/certificates/:id/renew',
    right: 'certificate change',
    summary: 'Renew a certificate now',
    status: 202,
    handle: renewCertificate,
  }),
  route({
    ...base,
    method: 'POST',
    path: '/v1/certificates/:id/rollback',
    right: 'certificate change',
    summary: 'Bring back the former certificate and key of a container',
    answer: objectOf({ version: { type: 'integer' } }),
    handle: rollBackCertificate,
  }),
]

async function listCertificates({ database, config }: ApiService, call: Call): Promise<Answer> {
  const page = parsePage(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: 'certificate t',
      where: sql`t.project_id = ${call.caller.projectId} AND ${LIVE_CERTIFICATE}`,
      order: sql`t.not_after, t.id`,
      json: CERTIFICATE_JSON,
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/certificates`
  return { status: 200, json: pageJson('certificates', items, total, { page, query: call.query, url }) }
}

async function showCertificate({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const { json, ...certificate } = await findCertificate<{ json: string }>(database, call.params.id, {
    columns: sql`${CERTIFICATE_JSON} AS json`,
    base: call.base,
  })
  allowOn(certificate)
  return { status: 200, json }
}

async function changeCertificate(
  service: ApiService,
  call: Call<z.output<typeof renewalChange>>,
  allowOn: AllowOn,
): Promise<Answer> {
  const certificate = await findCertificate<{ meta: unknown }>(service.database, call.params.id, {
    columns: sql`t.meta`,
  })
  allowOn(certificate)
  const { renew, renew_key: newKey } = await call.body()
  await changeRenewal(service.database, certificate, { renew, newKey })
  return showCertificate(service, call, allowOn)
}

async function listEvents({ database, config }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const certificate = await findCertificate(database, call.params.id)
  allowOn(certificate)
  const page = parsePage(call.query, config)
  const { items, total } = await readPage(
    database,
    {
      table: 'certificate_event e',
      where: sql`e.container_id = ${certificate.id}`,
      order: sql`e.id DESC`,
      json: EVENT_JSON,
    },
    page,
    call.base,
  )
  const url = `${call.base}/v1/certificates/${certificate.id}/events`
  return { status: 200, json: pageJson('events', items, total, { page, query: call.query, url }) }
}

async function renewCertificate({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const certificate = await findCertificate(database, call.params.id)
  allowOn(certificate)
  await askForRenewal(database, certificate.id)
  return { status: 202 }
}

async function rollBackCertificate({ database }: ApiService, call: Call, allowOn: AllowOn): Promise<Answer> {
  const certificate = await findCertificate(database, call.params.id)
  allowOn(certificate)
  return { status: 200, json: JSON.stringify({ version: await rollBack(database, certificate.id) }) }
}
