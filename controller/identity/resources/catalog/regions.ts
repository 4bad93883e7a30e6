import type { Knex } from 'knex'
import * as z from 'zod'
import { jsonAnswer } from '../../../api/answer.js'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { badRequest, forbidden } from '../../../http/errors.js'
import { type IdentityRoute, oneForm, route } from '../../dialect.js'
import { administrators, anyone } from '../../policy.js'
import { bodyOf, type Collection, collectionRoutes, createRow, type Fields, presentRow } from '../collection.js'
import * as fields from '../fields.js'
import { mustExist } from '../references.js'

const create = z.looseObject({
  id: z.string().max(255).optional(),
  description: fields.description
    .nullable()
    .transform(text => text ?? '')
    .optional(),
  parent_region_id: fields.id.nullable().optional(),
})

const update = create.partial()

const regions: Collection<typeof create, typeof update> = {
  singular: 'region',
  plural: 'regions',
  table: 'region',
  create,
  update,
  filters: { parent_region_id: 'text' },
  shown: ['id', 'description', 'parent_region_id'],
  allow: { list: anyone, show: anyone },
  prepare: async ({ trx, sent, before }): Promise<Fields> => {
    const { id, ...columns } = sent
    if (typeof columns.parent_region_id === 'string') {
      await mustExist(trx, 'region', 'region', columns.parent_region_id)
      if (before !== null && (await isWithin(trx, columns.parent_region_id, before.id))) {
        throw badRequest('A region cannot be its own parent or descendant.')
      }
    }
    return before === null && id !== undefined && id !== '' ? { id, ...columns } : columns
  },
  deleting: async (trx, region) => {
    const endpoint = await maybeOne(
      trx,
      sql`WITH RECURSIVE tree AS (
            SELECT id FROM region WHERE id = ${region.id}
            UNION SELECT r.id FROM region r JOIN tree t ON r.parent_region_id = t.id)
          SELECT id FROM endpoint WHERE region_id IN (SELECT id FROM tree) LIMIT 1`,
    )
    if (endpoint !== undefined) {
      throw forbidden(`Unable to delete region ${region.id} because it or its child regions have associated endpoints.`)
    }
  },
}

export const regionRoutes: readonly IdentityRoute[] = [
  ...collectionRoutes(regions),
  route({
    ...{ method: 'PUT', path: '/v3/regions/:id', right: administrators, group: 'regions', status: 201 },
    summary: 'Create a region with a given ID',
    request: bodyOf(regions.singular, regions.create),
    answer: oneForm('region'),
    handle: async (service, call) => {
      const row = await createRow(regions, service, call, { id: call.params.id! })
      return jsonAnswer(201, { region: presentRow(regions, call, row) })
    },
  }),
]

/** Whether `id` is `ancestor` or one of its descendants. */
async function isWithin(trx: Knex, id: string, ancestor: string): Promise<boolean> {
  const found = await maybeOne(
    trx,
    sql`WITH RECURSIVE above AS (
          SELECT id, parent_region_id FROM region WHERE id = ${id}
          UNION SELECT r.id, r.parent_region_id FROM region r JOIN above a ON r.id = a.parent_region_id)
        SELECT id FROM above WHERE id = ${ancestor}`,
  )
  return found !== undefined
}
