import type { Knex } from 'knex'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../../api/answer.js'
import { execute, many, maybeOne } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { badRequest, forbidden, notFound } from '../../../http/errors.js'
import {
  type IdentityCall,
  type IdentityRoute,
  listForm,
  oneForm,
  route,
  type Service,
  selfUrl,
} from '../../dialect.js'
import { administrators, type Params, readers } from '../../policy.js'
import { holdersOf, refreshTokens } from '../../tokens/effective-roles.js'
import { lockRights, revokeApplicationTokensWithRole, revokeTokensOfUsers } from '../../tokens/revocation.js'
import { findRow, findRows, type Row } from '../collection.js'
import { roles } from './roles.js'

const implied = '/v3/roles/:prior_id/implies'
const implication = `${implied}/:implied_id`

/** Roles that imply other roles. */
export const impliedRoleRoutes: readonly IdentityRoute[] = [
  route({
    ...{ method: 'GET', path: '/v3/role_inferences', right: readers, group: 'roles', status: 200 },
    summary: 'List the roles that imply others',
    answer: listForm('role_inferences'),
    handle: listInferences,
  }),
  route({
    ...{ method: 'GET', path: implied, right: readers, group: 'roles', status: 200 },
    summary: 'List the roles that a role implies',
    answer: oneForm('role_inference'),
    handle: listImplied,
  }),
  route({
    ...{ method: 'PUT', path: implication, right: administrators, group: 'roles', status: 201 },
    summary: 'Make a role imply another',
    answer: oneForm('role_inference'),
    handle: imply,
  }),
  route({
    ...{ method: 'HEAD', path: implication, right: readers, group: 'roles', status: 204 },
    summary: 'Check whether a role implies another',
    handle: checkImplication,
  }),
  route({
    ...{ method: 'GET', path: implication, right: readers, group: 'roles', status: 200 },
    summary: 'Show whether a role implies another',
    answer: oneForm('role_inference'),
    handle: showImplication,
  }),
  route({
    ...{ method: 'DELETE', path: implication, right: administrators, group: 'roles', status: 204 },
    summary: 'Stop a role from implying another',
    handle: removeImplication,
  }),
]

async function listInferences({ database }: Service, call: IdentityCall): Promise<Answer> {
  const summaryOf = (alias: Fragment) =>
    sql`json_build_object('id', ${alias}.id, 'name', ${alias}.name, 'description', ${alias}.description)`
  const pairs = await many(
    database,
    sql<{ prior_role_id: string; prior: Row; implied: Row }>`
      SELECT i.prior_role_id, ${summaryOf(sql`p`)} AS prior, ${summaryOf(sql`q`)} AS implied
        FROM implied_role i JOIN role p ON p.id = i.prior_role_id JOIN role q ON q.id = i.implied_role_id
       ORDER BY i.prior_role_id, i.implied_role_id`,
  )
  const priors = new Map(pairs.map(pair => [pair.prior_role_id, pair.prior]))
  const role_inferences = [...priors].map(([id, prior]) => ({
    prior_role: summary(call, prior),
    implies: pairs.filter(pair => pair.prior_role_id === id).map(pair => summary(call, pair.implied)),
  }))
  return jsonAnswer(200, { role_inferences, links: { self: selfUrl(call), previous: null, next: null } })
}

async function listImplied({ database }: Service, call: IdentityCall): Promise<Answer> {
  const prior = await findRow(database, roles, call.params.prior_id!)
  const ids = sql`SELECT implied_role_id FROM implied_role WHERE prior_role_id = ${prior.id}`
  const implied = await findRows(database, roles, sql`id IN (${ids})`)
  return jsonAnswer(200, {
    role_inference: { prior_role: summary(call, prior), implies: implied.map(role => summary(call, role)) },
    links: { self: selfUrl(call) },
  })
}

async function imply({ database }: Service, call: IdentityCall): Promise<Answer> {
  const { prior, implied } = await bothRoles(database, call)
  if (prior.id === implied.id) throw badRequest('A role cannot imply itself.')
  if (implied.domain_id !== null && prior.domain_id === null)
    throw forbidden('Global role cannot imply a domain-specific role.')
  if (implied.domain_id === null && implied.name === 'admin')
    throw forbidden(`${implied.id} cannot be an implied role.`)
  await inTransaction(database, async trx => {
    await lockRights(trx)
    await execute(
      trx,
      sql`INSERT INTO implied_role (prior_role_id, implied_role_id) VALUES (${prior.id}, ${implied.id})
          ON CONFLICT DO NOTHING`,
    )
    // A token does not show a role of a domain.
    const isShown = prior.domain_id === null
    await refreshTokens(trx, isShown ? { roleId: prior.id } : { userIds: await holdersOf(trx, prior.id) })
  })
  return jsonAnswer(201, present(call, prior, implied))
}

async function showImplication(service: Service, call: IdentityCall): Promise<Answer> {
  const { database } = service
  await checkImplication(service, call)
  const { prior, implied } = await bothRoles(database, call)
  return jsonAnswer(200, present(call, prior, implied))
}

async function checkImplication({ database }: Service, { params }: IdentityCall): Promise<Answer> {
  const found = await maybeOne(database, sql`SELECT prior_role_id FROM implied_role WHERE ${isImplication(params)}`)
  if (found === undefined) throw doesNotImply(params.prior_id!, params.implied_id!)
  return NO_CONTENT
}

async function removeImplication({ database }: Service, { params }: IdentityCall): Promise<Answer> {
  await inTransaction(database, async trx => {
    await lockRights(trx)
    const removed = await execute(trx, sql`DELETE FROM implied_role WHERE ${isImplication(params)}`)
    if (removed === 0) throw doesNotImply(params.prior_id!, params.implied_id!)
    const prior = await findRow(trx, roles, params.prior_id!)
    // Without the implied role, such a token may have no role left.
    if (prior.domain_id !== null) return revokeTokensOfUsers(trx, await holdersOf(trx, prior.id))
    await refreshTokens(trx, { roleId: prior.id })
    await revokeApplicationTokensWithRole(trx, prior.id)
  })
  return NO_CONTENT
}

const isImplication = (params: Params) =>
  sql`prior_role_id = ${params.prior_id!} AND implied_role_id = ${params.implied_id!}`

async function bothRoles(database: Knex, { params }: IdentityCall): Promise<{ prior: Row; implied: Row }> {
  return {
    prior: await findRow(database, roles, params.prior_id!),
    implied: await findRow(database, roles, params.implied_id!),
  }
}

const doesNotImply = (prior: string, implied: string) => notFound(`${prior} does not imply ${implied}.`)

const present = (call: IdentityCall, prior: Row, implied: Row) => ({
  role_inference: { prior_role: summary(call, prior), implies: summary(call, implied) },
  links: { self: selfUrl(call) },
})

const summary = (call: IdentityCall, role: Row) => ({
  id: role.id,
  name: role.name,
  description: role.description,
  links: { self: `${call.base}/v3/roles/${role.id}` },
})
