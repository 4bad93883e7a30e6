import { z } from 'zod'
import { sql } from '../../../database/sql.js'
import type { IdentityCall, IdentityRoute } from '../../dialect.js'
import { refreshTokens } from '../../tokens/effective-roles.js'
import { revokeApplicationTokensWithRole, revokeTokensWithRole } from '../../tokens/revocation.js'
import { type Collection, collectionRoutes, presentRow, type Row } from '../collection.js'
import * as fields from '../fields.js'

const create = z.looseObject({
  name: fields.name(255),
  description: fields.description.nullable().optional(),
  domain_id: z.null('domain-specific roles are not supported').optional(),
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
    domain_id: () => sql`false`,
  },
  shown: ['id', 'name', 'description', 'options'],
  derive: () => ({ domain_id: null }),
  carriesRights: true,
  prepare: async ({ sent }) => {
    const { domain_id: _, ...columns } = sent
    return columns
  },
  // Tokens carry the names of their roles.
  updated: async (trx, before, after) => {
    if (before.name === after.name) return
    await refreshTokens(trx, { roleId: after.id })
    await revokeApplicationTokensWithRole(trx, after.id)
  },
  deleting: async (trx, role) => revokeTokensWithRole(trx, role.id),
}

export const roleRoutes: readonly IdentityRoute[] = collectionRoutes(roles)

export const presentRole = (call: IdentityCall, row: Row) => presentRow(roles, call, row)
