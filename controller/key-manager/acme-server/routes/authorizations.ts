import { type Answer, jsonAnswer } from '../../../api/answer.js'
import { ACME_PREFIX, type AcmeService, type Call, route } from '../dialect.js'
import { malformed, problemDocument } from '../problem.js'
import { requireAccount, requireEmpty, requireFound } from '../requests.js'
import { authorizationStatus } from '../rules/state.js'
import {
  type Authorization,
  type Challenge,
  deactivateAuthorization,
  findAuthorization,
  findByChallenge,
  startChallenge,
} from '../store/authorizations.js'

const base = { method: 'POST', group: 'authorizations', right: 'account', status: 200 } as const

export const authorizationRoutes = [
  route({
    ...base,
    path: `${ACME_PREFIX}authz/:id`,
    summary: 'Show or deactivate an authorization',
    handle: showAuthorization,
  }),
  route({
    ...base,
    path: `${ACME_PREFIX}challenge/:id`,
    summary: 'Show a challenge, or say that it is ready',
    handle: answerChallenge,
  }),
]

/** Seconds until a client should look again at what is being validated. */
const RETRY_AFTER = { 'Retry-After': '2' }

async function showAuthorization({ database }: AcmeService, call: Call): Promise<Answer> {
  const account = requireAccount(call)
  const id = call.params.id ?? ''
  const found = requireFound(await findAuthorization(database, id), account, 'authorization')
  const { payload } = call.caller
  if (payload === null) return authorizationAnswer(call, found)
  if (payload.status !== 'deactivated') throw malformed('The status of an authorization can only become deactivated.')
  await deactivateAuthorization(database, id)
  return authorizationAnswer(call, { ...found, deactivated: true })
}

function authorizationAnswer(call: Call, authorization: Authorization): Answer {
  const { identifier, wildcard, expiresAt, details } = authorization
  const status = authorizationStatus(authorization, new Date())
  // Of a settled authorization, only the challenge that settled it matters.
  const shown =
    status === 'pending' ? details : details.filter(each => each.status === 'valid' || each.status === 'invalid')
  const body = {
    identifier,
    status,
    expires: expiresAt.toISOString(),
    ...(wildcard && { wildcard }),
    challenges: shown.map(each => challengeBody(call, each)),
  }
  const isBusy = status === 'pending' && details.some(each => each.status === 'processing')
  return { ...jsonAnswer(200, body), ...(isBusy && { headers: RETRY_AFTER }) }
}

const challengeBody = (call: Call, { id, type, status, token, error, validatedAt }: Challenge) => ({
  type,
  url: `${call.base}${ACME_PREFIX}challenge/${id}`,
  status,
  token,
  ...(validatedAt !== null && { validated: validatedAt.toISOString() }),
  ...(error !== null && { error: problemDocument(error) }),
})

async function answerChallenge({ database }: AcmeService, call: Call): Promise<Answer> {
  const account = requireAccount(call)
  const id = call.params.id ?? ''
  const found = requireFound(await findByChallenge(database, id), account, 'challenge')
  if (call.caller.payload === null) {
    requireEmpty(call)
    return challengeAnswer(call, found, id)
  }
  if (authorizationStatus(found, new Date()) !== 'pending') return challengeAnswer(call, found, id)
  await startChallenge(database, id)
  return challengeAnswer(call, requireFound(await findByChallenge(database, id), account, 'challenge'), id)
}

function challengeAnswer(call: Call, authorization: Authorization, id: string): Answer {
  const challenge = authorization.details.find(each => each.id === id)
  if (challenge === undefined) throw new Error(`Challenge ${id} is not one of its authorization`)
  const up = `<${call.base}${ACME_PREFIX}authz/${authorization.id}>;rel="up"`
  const headers = { Link: up, ...(challenge.status === 'processing' && RETRY_AFTER) }
  return { ...jsonAnswer(200, challengeBody(call, challenge)), headers }
}
