import * as z from 'zod'
import { sql } from '../../../database/sql.js'
import type { IdentityCall, IdentityRoute } from '../../dialect.js'
import { holdersOf, refreshTokens } from '../../tokens/effective-roles.js'
import { revokeApplicationTokensWithRole, revokeTokensOfUsers, revokeTokensWithRole } from '../../tokens/revocation.js'
import { type Collection, collectionRoutes, presentRow, type Row } from '../collection.js'
import * as fields from '../fields.js'
import { mustExist } from '../references.js'

const create = z.looseObject({
  name: fields.name(255),
  description: fields.description.nullable().optional(),
  domain_id: fields.id.nullable().optional(),
  options: fields.options.optional(),
})

const update = create.partial()

export const roles: Collection<typeof create, typeof update> = {
  singular: 'role',
  plural: 'roles',
  table: 'role',
  create,
  update,
  filters: {
    name: 'text',
    domain_id: 'text',
  },
  // Without a domain, Keystone lists the roles that count everywhere.
  listed: call => (call.argument('domain_id') === undefined ? sql`domain_id IS NULL` : sql`true`),
  shown: ['id', 'name', 'domain_id', 'description', 'options'],
  carriesRights: true,
  prepare: async ({ trx, sent, before }) => {
    const { domain_id, ...columns } = sent
    if (before !== null || typeof domain_id !== 'string') return columns
    await mustExist(trx, 'domain', 'domain', domain_id)
    return { ...columns, domain_id }
  },
  // Tokens carry the names of their roles.
  updated: async (trx, before, after) => {
    if (before.name === after.name) return
    await refreshTokens(trx, { roleId: after.id })
    await revokeApplicationTokensWithRole(trx, after.id)
  },
  deleting: async (trx, role) => {
    if (role.domain_id === null) await revokeTokensWithRole(trx, role.id)
    else await revokeTokensOfUsers(trx, await holdersOf(trx, role.id))
  },
}

export const roleRoutes: readonly IdentityRoute[] = collectionRoutes(roles)

export const presentRole = (call: IdentityCall, row: Row) => presentRow(roles, call, row)
