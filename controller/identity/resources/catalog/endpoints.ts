import * as z from 'zod'
import { execute, maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { badRequest } from '../../../http/errors.js'
import type { IdentityRoute } from '../../dialect.js'
import { type Collection, collectionRoutes } from '../collection.js'
import * as fields from '../fields.js'

const create = z.looseObject({
  interface: z.enum(['public', 'internal', 'admin']),
  url: z
    .string()
    .max(2048)
    .regex(/^[A-Za-z][A-Za-z0-9+.-]*:\/\/\S+$/, 'must be a URL'),
  service_id: fields.id,
  region_id: fields.id.nullable().optional(),
  region: fields.id.nullable().optional(),
  enabled: fields.enabled.optional(),
})

const update = create.partial()

const endpoints: Collection<typeof create, typeof update> = {
  singular: 'endpoint',
  plural: 'endpoints',
  table: 'endpoint',
  create,
  update,
  filters: {
    interface: 'text',
    service_id: 'text',
    region_id: 'text',
    region: { text: sql`region_id` },
  },
  shown: ['id', 'interface', 'region_id', 'service_id', 'url', 'enabled'],
  derive: row => ({ region: row.region_id }),
  prepare: async ({ trx, sent }) => {
    const { region, ...columns } = sent
    if (columns.service_id !== undefined) {
      const service = await maybeOne(trx, sql`SELECT id FROM service WHERE id = ${columns.service_id}`)
      if (service === undefined) throw badRequest(`There is no service ${columns.service_id}.`)
    }
    if (typeof columns.region_id === 'string') {
      const known = await maybeOne(trx, sql`SELECT id FROM region WHERE id = ${columns.region_id}`)
      if (known === undefined) throw badRequest(`There is no region ${columns.region_id}.`)
      return columns
    }
    if (region === undefined || columns.region_id === null) return columns
    // The older field name also creates the region, which the command line relies on.
    if (region !== null) await execute(trx, sql`INSERT INTO region (id) VALUES (${region}) ON CONFLICT DO NOTHING`)
    return { ...columns, region_id: region }
  },
}

export const endpointRoutes: readonly IdentityRoute[] = collectionRoutes(endpoints)
