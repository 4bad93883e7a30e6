import { inTransaction } from '../../../database/transaction.js'
import { badRequest, forbidden, notFound } from '../../../http/errors.js'
import { administrators, readers } from '../../policy.js'
import { type Answer, created, noContent, ok, type Request, type Route } from '../../request.js'
import { lockRights, revokeApplicationTokensWithRole } from '../../tokens/revocation.js'
import { findRow, type Row } from '../collection.js'
import { refreshTokens } from './effective-roles.js'

const implication = '/roles/:prior_id/implies/:implied_id'

/** Roles that bring other roles with them. */
export const impliedRoleRoutes: readonly Route[] = [
  { method: 'GET', path: '/role_inferences', allow: readers, answer: listInferences },
  { method: 'GET', path: '/roles/:prior_id/implies', allow: readers, answer: listImplied },
  { method: 'PUT', path: implication, allow: administrators, answer: imply },
  { method: 'HEAD', path: implication, allow: readers, answer: checkImplication },
  { method: 'GET', path: implication, allow: readers, answer: showImplication },
  { method: 'DELETE', path: implication, allow: administrators, answer: implyNoMore },
]

const ROLE = { table: 'role', singular: 'role' }

async function listInferences(request: Request): Promise<Answer> {
  const pairs: { prior_role_id: string; prior: Row; implied: Row }[] = await request
    .database('implied_role as i')
    .join('role as p', 'p.id', 'i.prior_role_id')
    .join('role as q', 'q.id', 'i.implied_role_id')
    .select(
      'i.prior_role_id',
      request.database.raw('to_json(p) AS prior'),
      request.database.raw('to_json(q) AS implied'),
    )
    .orderBy(['i.prior_role_id', 'i.implied_role_id'])
  const priors = new Map(pairs.map(pair => [pair.prior_role_id, pair.prior]))
  const role_inferences = [...priors].map(([id, prior]) => ({
    prior_role: summary(request, prior),
    implies: pairs.filter(pair => pair.prior_role_id === id).map(pair => summary(request, pair.implied)),
  }))
  return ok({ role_inferences, links: { self: request.url, previous: null, next: null } })
}

async function listImplied(request: Request): Promise<Answer> {
  const prior = await findRow(request.database, ROLE, request.params.prior_id!)
  const implied: Row[] = await request
    .database('role')
    .whereIn('id', request.database('implied_role').where({ prior_role_id: prior.id }).select('implied_role_id'))
    .orderBy('id')
  return ok({
    role_inference: { prior_role: summary(request, prior), implies: implied.map(role => summary(request, role)) },
    links: { self: request.url },
  })
}

async function imply(request: Request): Promise<Answer> {
  const { prior, implied } = await bothRoles(request)
  if (prior.id === implied.id) throw badRequest('A role cannot imply itself.')
  if (implied.name === 'admin') throw forbidden(`${implied.id} cannot be an implied role.`)
  await inTransaction(request.database, async trx => {
    await lockRights(trx)
    await trx('implied_role').insert({ prior_role_id: prior.id, implied_role_id: implied.id }).onConflict().ignore()
    await refreshTokens(trx, { roleId: prior.id })
  })
  return created(present(request, prior, implied))
}

async function showImplication(request: Request): Promise<Answer> {
  await checkImplication(request)
  const { prior, implied } = await bothRoles(request)
  return ok(present(request, prior, implied))
}

async function checkImplication({ database, params }: Request): Promise<Answer> {
  const found = await database('implied_role')
    .where({ prior_role_id: params.prior_id!, implied_role_id: params.implied_id! })
    .first('prior_role_id')
  if (found === undefined) throw doesNotImply(params.prior_id!, params.implied_id!)
  return noContent
}

async function implyNoMore({ database, params }: Request): Promise<Answer> {
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const removed = await trx('implied_role')
      .where({ prior_role_id: params.prior_id!, implied_role_id: params.implied_id! })
      .delete()
    if (removed === 0) throw doesNotImply(params.prior_id!, params.implied_id!)
    await refreshTokens(trx, { roleId: params.prior_id! })
    await revokeApplicationTokensWithRole(trx, params.prior_id!)
  })
  return noContent
}

async function bothRoles({ database, params }: Request): Promise<{ prior: Row; implied: Row }> {
  return {
    prior: await findRow(database, ROLE, params.prior_id!),
    implied: await findRow(database, ROLE, params.implied_id!),
  }
}

const doesNotImply = (prior: string, implied: string) => notFound(`${prior} does not imply ${implied}.`)

const present = (request: Request, prior: Row, implied: Row) => ({
  role_inference: { prior_role: summary(request, prior), implies: summary(request, implied) },
  links: { self: request.url },
})

const summary = (request: Request, role: Row) => ({
  id: role.id,
  name: role.name,
  description: role.description,
  links: { self: `${request.base}/v3/roles/${role.id}` },
})
