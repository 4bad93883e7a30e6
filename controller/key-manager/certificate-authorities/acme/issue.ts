import type { CertificateRequest } from '../../../../x509/certificate-request.js'
import { certificatesIn, encodePem } from '../../../../x509/encoding/pem.js'
import { InvalidX509 } from '../../../../x509/invalid-x509.js'
import { readLeafCertificate } from '../../../../x509/leaf-certificate.js'
import { sql } from '../../../database/sql.js'
import type { Logger } from '../../../log/log.js'
import type { IssueDetails, IssuedCertificate, IssueOutcome } from '../ca-backend.js'
import { AccountRefused, forgetRegistration, openAccount } from './account.js'
import { authorize } from './authorize.js'
import { challengesWhere } from './challenge-rows.js'
import { type ChallengePublisher, NotServed } from './challenges.js'
import type { Account, AcmeClient } from './client/client.js'
import { AcmeProblem, problemIn } from './client/problem.js'
import { Unreachable } from './client/transport.js'
import type { AcmeService, ChallengeType } from './options.js'
import { type AcmeOrder, acmeOrder, createOrder, type Identifier } from './order.js'
import { checkProofs, endAuthorizations } from './proofs.js'
import { certificateIdOf } from './renewal-info.js'
import { countOrder, type OrderState, readState, uncountOrder, writeState } from './state.js'

/** After this time nobody will serve the challenges any more. */
const PATIENCE_MS = 3_600_000

export type AcmeParts = {
  service: AcmeService
  client: AcmeClient
  directoryUrl: string
  publishers: Readonly<Partial<Record<ChallengeType, ChallengePublisher>>>
  dnsAllowed: (projectId: string, name: string) => boolean
  log: Logger
}

export type Asked = IssueDetails & {
  caId: string
  projectId: string
  request: CertificateRequest
  identifiers: readonly Identifier[]
}

/**
 * Takes a certificate as far as it gets now: each call goes on from the state that the last one stored, also in another
 * process. Never waits for the CA.
 * @throws CryptoUnavailable
 */
export async function issueByAcme(parts: AcmeParts, asked: Asked, signal: AbortSignal): Promise<IssueOutcome> {
  try {
    const outcome = await advance(parts, asked, signal)
    if (outcome.kind === 'issued' || outcome.kind === 'rejected') await withdrawAll(parts, asked.requestId)
    return outcome
  } catch (error) {
    const outcome = await outcomeOf(parts, asked, error)
    if (outcome.kind === 'rejected') await withdrawAll(parts, asked.requestId)
    return outcome
  }
}

async function advance(parts: AcmeParts, asked: Asked, signal: AbortSignal): Promise<IssueOutcome> {
  const { service, client, directoryUrl } = parts
  const account = await openAccount(service, client, directoryUrl, signal)
  const known = await readState(service.database, asked.requestId, directoryUrl)
  const state = known ?? (await begin(parts, asked, account, signal))
  if (state === null) return ordersUsedUp()
  if (state.unproven.length > 0) return beginAnew(parts, asked, { account, state }, signal)
  const { value: order, retryAfter } = await client.post(account, state.order, null, acmeOrder, signal)
  if (order.status === 'pending') return prove(parts, asked, { account, state, order }, signal)
  if (order.status !== 'ready') return outcomeOfOrder(parts, asked, { account, order, retryAfter }, signal)
  const unproven = await requireProofs(parts, asked, { account, state, order }, signal)
  if (unproven !== null) return unproven
  const finalized = await client.post(
    account,
    order.finalize,
    { csr: asked.request.der.toString('base64url') },
    acmeOrder,
    signal,
  )
  return outcomeOfOrder(parts, asked, { account, order: finalized.value, retryAfter: finalized.retryAfter }, signal)
}

const ordersUsedUp = (): IssueOutcome => ({
  kind: 'unavailable',
  message: 'The project has had its orders of a day at this CA.',
  retryAfter: 3600,
})

/**
 * Creates an order at the CA and remembers it, so that no other is made.
 * @returns null if the project has had its orders of a day
 */
async function begin(
  parts: AcmeParts,
  asked: Asked,
  account: Account,
  signal: AbortSignal,
  carried: Pick<OrderState, 'proving' | 'isAnew'> = { proving: [], isAnew: false },
): Promise<OrderState | null> {
  const { service, client, directoryUrl } = parts
  const { identifiers, replaces } = asked
  const { renewalInfo } = await client.directory(signal)
  const counted = await countOrder(service.database, asked.projectId, service.config.acme.orders_per_day)
  if (counted === null) return null
  const former = replaces === null || renewalInfo === undefined ? null : certificateIdOf(replaces)
  const order = await createOrder(client, account, { identifiers, replaces: former }, signal).catch(async error => {
    if (isPassing(error)) await uncountOrder(service.database, counted)
    throw error
  })
  const state = {
    ...{ directory: directoryUrl, order, startedAt: Date.now(), answered: [], unproven: [] },
    ...carried,
  }
  await writeState(service.database, asked, state)
  return state
}

/** Whether a request failed because of the CA's present condition. */
const isPassing = (error: unknown): boolean =>
  error instanceof Unreachable ||
  (error instanceof AcmeProblem && (error.status >= 500 || error.kind === 'rateLimited'))

/** Ends the authorizations that others have proven, and creates another order, which has to be proven by the project. */
async function beginAnew(
  parts: AcmeParts,
  asked: Asked,
  { account, state }: { account: Account; state: OrderState },
  signal: AbortSignal,
): Promise<IssueOutcome> {
  await endAuthorizations({ client: parts.client, account }, state.unproven, signal)
  const begun = await begin(parts, asked, account, signal, { proving: state.proving, isAnew: true })
  return begun === null ? ordersUsedUp() : pending('The CA validates the names.', 1)
}

/** @returns null if the project has proven the names of a ready order */
async function requireProofs(
  { service, client, dnsAllowed }: AcmeParts,
  asked: Asked,
  { account, state, order }: { account: Account; state: OrderState; order: AcmeOrder },
  signal: AbortSignal,
): Promise<IssueOutcome | null> {
  const { projectId, identifiers } = asked
  const { database } = service
  const isGiven = (name: string) => dnsAllowed(projectId, name)
  const proofs = await checkProofs(
    { database, client, account, projectId, isGiven },
    identifiers,
    order.authorizations,
    signal,
  )
  if (proofs.kind === 'proven') return null
  const { name } = proofs
  if (proofs.kind === 'busy') {
    const message = `Another project proves the name ${name} at the moment.`
    if (Date.now() - state.startedAt > PATIENCE_MS) return { kind: 'rejected', reason: message }
    return pending(message, pauseAfter(state.startedAt))
  }
  if (state.isAnew) {
    const reason = `The CA accepts the name ${name} without a proof, so only a project to which the operator gave it can have it.`
    return { kind: 'rejected', reason }
  }
  await writeState(database, asked, { ...state, unproven: [...proofs.urls] })
  return pending('The names have to be proven anew.', 1)
}

async function prove(
  { service, client, publishers, dnsAllowed }: AcmeParts,
  asked: Asked,
  { account, state, order }: { account: Account; state: OrderState; order: AcmeOrder },
  signal: AbortSignal,
): Promise<IssueOutcome> {
  const { requestId, projectId } = asked
  const preferred = service.config.acme.challenges
  const { startedAt } = state
  let { answered, proving } = state
  const store = () => writeState(service.database, asked, { ...state, answered, proving })
  const remember = async (told: readonly string[]) => {
    answered = [...answered, ...told]
    await store()
  }
  const intend = async (authorizations: readonly string[]) => {
    proving = [...new Set([...proving, ...authorizations])]
    await store()
  }
  try {
    const outcome = await authorize(
      {
        ...{ client, account, publishers, preferred, requestId, projectId, answered, remember, intend },
        dnsAllowed: name => dnsAllowed(projectId, name),
      },
      order.authorizations,
      signal,
    )
    if (outcome.kind === 'refused') return { kind: 'rejected', reason: outcome.reason }
    return pending('The CA validates the names.', outcome.retryAfter ?? pauseAfter(startedAt))
  } catch (error) {
    if (!(error instanceof NotServed)) throw error
    if (Date.now() - startedAt > PATIENCE_MS) return { kind: 'rejected', reason: error.message }
    return pending(error.message, pauseAfter(startedAt))
  }
}

/** 1 s at first, up to 30 s for what takes longer. */
const pauseAfter = (startedAt: number): number =>
  Math.min(30, Math.max(1, Math.round((Date.now() - startedAt) / 10_000)))

const pending = (message: string, seconds: number): IssueOutcome => ({
  kind: 'pending',
  seconds: Math.max(1, seconds),
  message,
})

async function outcomeOfOrder(
  { client }: AcmeParts,
  asked: Asked,
  { account, order, retryAfter }: { account: Account; order: AcmeOrder; retryAfter: number | null },
  signal: AbortSignal,
): Promise<IssueOutcome> {
  if (order.status === 'invalid') {
    const detail = order.error === undefined ? '.' : `: ${problemIn(order.error, 0, null).message}`
    return { kind: 'rejected', reason: `The CA does not fulfil the order${detail}` }
  }
  if (order.status !== 'valid' || order.certificate === undefined) {
    return pending('The CA issues the certificate.', retryAfter ?? 1)
  }
  const chain = await client.postForText(account, order.certificate, null, signal)
  return { kind: 'issued', issued: readIssued(asked, chain) }
}

/** The key was changed after the order was finalized. */
class OtherKey extends AcmeProblem {}

/** @throws AcmeProblem unless the chain begins with a certificate for the requested key */
function readIssued({ caId, request }: Asked, chain: string): IssuedCertificate {
  try {
    const [, ...above] = certificatesIn(chain)
    const { pem, serial, subject, notAfter, publicKey } = readLeafCertificate(chain)
    if (!request.publicKey.key.equals(publicKey)) throw new OtherKey('', 'The order is for another key.', 0, null)
    const intermediates = above.map(each => encodePem('CERTIFICATE', each)).join('')
    return { caId, certificate: pem, intermediates, serial, subjectDn: subject, notAfter }
  } catch (error) {
    if (error instanceof InvalidX509)
      throw new AcmeProblem('', `The answer of the CA is no certificate: ${error.message}`, 0, null)
    throw error
  }
}

/** Problems that another attempt would meet again: the tenant has to change something. */
const FINAL: readonly string[] = [
  ...['rejectedIdentifier', 'unsupportedIdentifier', 'caa', 'dns', 'connection', 'tls', 'incorrectResponse', 'badCSR'],
  ...['badPublicKey', 'badSignatureAlgorithm', 'unauthorized', 'malformed', 'compound'],
]

/** @throws the error if it is none of the CA's */
async function outcomeOf(parts: AcmeParts, asked: Asked, error: unknown): Promise<IssueOutcome> {
  const { service, directoryUrl, log } = parts
  if (error instanceof Unreachable) {
    log.warn({ directory: directoryUrl, err: error }, 'an ACME CA cannot be reached')
    return { kind: 'unavailable', message: 'The CA cannot be reached.' }
  }
  if (error instanceof AccountRefused) {
    log.error({ directory: directoryUrl, reason: error.message }, 'the ACME account cannot be used')
    return { kind: 'unavailable', message: 'The operator’s account at the CA cannot be used.' }
  }
  if (!(error instanceof AcmeProblem)) throw error
  const { kind, status, retryAfter, message } = error
  log.warn(
    { directory: directoryUrl, request: asked.requestId, kind, status, retryAfter, detail: message },
    'an ACME CA reports a problem',
  )
  if (kind === 'accountDoesNotExist') await forgetRegistration(service, directoryUrl)
  // The order is not known any more, belongs to a former account, or is for a former key.
  if (kind === 'accountDoesNotExist' || status === 404 || error instanceof OtherKey)
    await writeState(service.database, asked, null)
  else if (FINAL.includes(kind)) return { kind: 'rejected', reason: `The CA refuses the order: ${message}` }
  if (kind === 'orderNotReady') return pending('The CA validates the names.', 1)
  const hold = retryAfter ?? (kind === 'rateLimited' ? RATE_LIMIT_SECONDS : null)
  return { kind: 'unavailable', message: `The CA reports: ${message}`, ...(hold !== null && { retryAfter: hold }) }
}

/** When a CA limits without saying how long. */
const RATE_LIMIT_SECONDS = 3600

async function withdrawAll({ service, publishers, log }: AcmeParts, requestId: string): Promise<void> {
  for (const challenge of await challengesWhere(service.database, sql`p.request_id = ${requestId}`)) {
    await publishers[challenge.type]
      ?.withdraw(challenge)
      .catch(error =>
        log.warn({ err: error, identifier: challenge.identifier }, 'a challenge could not be withdrawn yet'),
      )
  }
}
