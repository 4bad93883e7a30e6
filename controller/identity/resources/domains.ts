import * as z from 'zod'
import type { Database } from '../../database/connection.js'
import { many } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { forbidden } from '../../http/errors.js'
import type { IdentityCall, IdentityRoute } from '../dialect.js'
import { readersAndDomain } from '../policy.js'
import { holdersOf } from '../tokens/effective-roles.js'
import { revokeTokensOfDomain, revokeTokensOfUsers } from '../tokens/revocation.js'
import { type Collection, collectionRoutes, findRows, presentRow, type Row } from './collection.js'
import * as fields from './fields.js'

const create = z.looseObject({
  name: fields.name(64),
  description: fields.description
    .nullable()
    .transform(text => text ?? '')
    .optional(),
  enabled: fields.enabled.optional(),
  options: fields.options.optional(),
  tags: fields.tags.optional(),
})

const update = create.partial()

const domains: Collection<typeof create, typeof update> = {
  singular: 'domain',
  plural: 'domains',
  table: 'domain',
  create,
  update,
  filters: { name: 'text', enabled: 'boolean' },
  shown: ['id', 'name', 'description', 'enabled', 'tags', 'options'],
  allow: { show: readersAndDomain },
  carriesRights: true,
  updated: async (trx, before, after) => {
    if (before.enabled && !after.enabled) await revokeTokensOfDomain(trx, after.id)
  },
  deleting: async (trx, domain) => {
    if (domain.enabled) throw forbidden('Cannot delete a domain that is enabled, please disable it first.')
    // Its roles go with it, and roles of other domains may imply them.
    const roles = await many(trx, sql<{ id: string }>`SELECT id FROM role WHERE domain_id = ${domain.id}`)
    for (const { id } of roles) await revokeTokensOfUsers(trx, await holdersOf(trx, id))
  },
}

export const domainRoutes: readonly IdentityRoute[] = collectionRoutes(domains)

export const presentDomain = (call: IdentityCall, row: Row) => presentRow(domains, call, row)

/** The domains that match a condition. */
export const findDomains = (database: Database, condition: Fragment): Promise<Row[]> =>
  findRows(database, domains, condition)
