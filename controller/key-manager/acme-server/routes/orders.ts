import * as z from 'zod'
import { type Answer, jsonAnswer } from '../../../api/answer.js'
import { sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { ApiError } from '../../../http/errors.js'
import { usableAuthority } from '../../certificate-authorities/find-authority.js'
import { storeOrder } from '../../orders/store.js'
import { ACME_PREFIX, type AcmeService, actorIn, type Call, route } from '../dialect.js'
import { AcmeProblem, type Identifier, malformed, problemDocument } from '../problem.js'
import { payloadAs, requireAccount, requireEmpty, requireFound } from '../requests.js'
import { parseCertificateId } from '../rules/certificate-id.js'
import { readOrderedRequest } from '../rules/csr.js'
import { parseIdentifiers } from '../rules/identifiers.js'
import { orderStatus } from '../rules/state.js'
import { parseValidity } from '../rules/validity.js'
import type { Account } from '../store/accounts.js'
import { findByCertificateId } from '../store/certificates.js'
import { type AcmeOrder, createOrder, findOrder, markFinalized, type OrderLimits } from '../store/orders.js'

const base = { method: 'POST', group: 'orders', right: 'account', status: 200 } as const

export const orderRoutes = [
  route({ ...base, path: `${ACME_PREFIX}new-order`, summary: 'Order a certificate', status: 201, handle: newOrder }),
  route({ ...base, path: `${ACME_PREFIX}order/:id`, summary: 'Show an order', handle: showOrder }),
  route({
    ...base,
    path: `${ACME_PREFIX}order/:id/finalize`,
    summary: 'Ask for the certificate of a ready order',
    handle: finalizeOrder,
  }),
]

/** Seconds until a client should look again: issuance takes less. */
const RETRY_AFTER = '1'

const INTERNAL = 'internal'

const newOrderPayload = z.object({
  identifiers: z.unknown(),
  notBefore: z.string().optional(),
  notAfter: z.string().optional(),
  replaces: z.string().optional(),
})

async function newOrder(service: AcmeService, call: Call): Promise<Answer> {
  const account = requireAccount(call)
  const payload = payloadAs(call, newOrderPayload)
  const { certificate_authority: policy, acme_server: settings } = service.config
  const identifiers = parseIdentifiers(payload.identifiers, policy, account.projectId)
  const validity = parseValidity(payload, new Date(), policy.certificate_days)
  const replaces =
    payload.replaces === undefined ? null : await requireReplaceable(service, account, payload.replaces, identifiers)
  const limits: OrderLimits = {
    perAccount: Math.max(1, Math.floor(settings.orders_per_hour / 3)),
    perProject: settings.orders_per_hour,
    names: settings.names_per_hour,
    failures: settings.failures_per_hour,
  }
  const id = await createOrder(service, account, { identifiers, ...validity, replaces }, limits)
  const made = requireFound(await findOrder(service.database, id), account, 'order')
  return answerOf(call, made, 201)
}

/**
 * The certificate that an order replaces (RFC 9773, 5): one of this account, with a name in common.
 * @throws AcmeProblem malformed
 */
async function requireReplaceable(
  { database }: AcmeService,
  account: Account,
  text: string,
  identifiers: readonly Identifier[],
): Promise<string> {
  const id = parseCertificateId(text)
  const found = id === null ? null : await findByCertificateId(database, id)
  if (found === null || found.accountId !== account.id) {
    throw malformed('The replaces member names no certificate of this account.')
  }
  const names = new Set(found.identifiers?.map(({ value }) => value))
  if (!identifiers.some(({ value }) => names.has(value))) {
    throw malformed('The order has no identifier in common with the certificate that it replaces.')
  }
  return text
}

async function showOrder({ database }: AcmeService, call: Call): Promise<Answer> {
  const account = requireAccount(call)
  requireEmpty(call)
  return answerOf(call, requireFound(await findOrder(database, call.params.id ?? ''), account, 'order'), 200)
}

function answerOf(call: Call, order: AcmeOrder, httpStatus: number): Answer {
  const url = `${call.base}${ACME_PREFIX}order/${order.id}`
  const status = orderStatus(order, new Date())
  const body = {
    status,
    expires: order.expiresAt.toISOString(),
    identifiers: order.identifiers,
    ...(order.notBefore !== null && { notBefore: order.notBefore.toISOString() }),
    ...(order.notAfter !== null && { notAfter: order.notAfter.toISOString() }),
    ...(order.replaces !== null && { replaces: order.replaces }),
    authorizations: order.authorizationIds.map(id => `${call.base}${ACME_PREFIX}authz/${id}`),
    finalize: `${url}/finalize`,
    ...(status === 'valid' && { certificate: `${call.base}${ACME_PREFIX}certificate/${order.id}` }),
    ...(order.errorReason !== null && {
      error: problemDocument({
        type: order.errorStatus === '500' ? 'serverInternal' : 'rejectedIdentifier',
        detail: order.errorReason,
      }),
    }),
  }
  const headers = { Location: url, ...(status === 'processing' && { 'Retry-After': RETRY_AFTER }) }
  return { ...jsonAnswer(httpStatus, body), headers }
}

const finalizePayload = z.object({ csr: z.string() })

/** Hands a ready order to the key manager: it becomes an order of a certificate there, which a worker carries out. */
async function finalizeOrder(service: AcmeService, call: Call): Promise<Answer> {
  const account = requireAccount(call)
  const { csr } = payloadAs(call, finalizePayload)
  const id = call.params.id ?? ''
  const order = requireFound(await findOrder(service.database, id), account, 'order')
  requireReady(order)
  await readOrderedRequest(csr, order.identifiers, account.thumbprint)
  const caId = await internalAuthority(service, account.projectId)
  const requestData = Buffer.from(csr, 'base64url').toString('base64')
  await inTransaction(service.database, async trx => {
    // Two requests may finalize at once.
    const held = requireFound(await findOrder(trx, id, sql`FOR UPDATE OF o`), account, 'order')
    requireReady(held)
    const secretOrderId = await storeOrder(
      { ...service, database: trx },
      {
        projectId: account.projectId,
        creatorId: account.creatorId,
        type: 'certificate',
        meta: {
          request_type: 'custom',
          name: nameOf(held),
          ca_id: caId,
          request_data: requestData,
          ...validityOf(held),
        },
        expiration: null,
        passphrase: null,
      },
      actorIn(call),
    ).catch(asProblem)
    await markFinalized(trx, id, secretOrderId, service.config.certificate_authority.certificate_days)
  })
  return answerOf(call, requireFound(await findOrder(service.database, id), account, 'order'), 200)
}

/** @throws AcmeProblem orderNotReady */
function requireReady(order: AcmeOrder): void {
  const status = orderStatus(order, new Date())
  if (status !== 'ready') throw new AcmeProblem('orderNotReady', `The order is ${status}, not ready.`)
}

/** The internal CA that signs for a project. @throws AcmeProblem unauthorized */
async function internalAuthority({ database }: AcmeService, projectId: string): Promise<string> {
  const found = await usableAuthority(database, projectId, INTERNAL)
  if (found !== null) return found.id
  throw new AcmeProblem('unauthorized', 'No internal certificate authority is on the list of the project.')
}

const MAX_NAME = 255

const nameOf = ({ identifiers }: AcmeOrder): string => (identifiers[0]?.value ?? '').slice(0, MAX_NAME)

const validityOf = ({ notBefore, notAfter }: AcmeOrder) => ({
  ...(notBefore !== null && { not_before: notBefore.toISOString() }),
  ...(notAfter !== null && { not_after: notAfter.toISOString() }),
})

/** The project's quota of orders is the only refusal. */
function asProblem(error: unknown): never {
  throw error instanceof ApiError && error.status === 403 ? new AcmeProblem('rateLimited', error.message) : error
}
