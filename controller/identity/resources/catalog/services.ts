import * as z from 'zod'
import type { IdentityRoute } from '../../dialect.js'
import { type Collection, collectionRoutes } from '../collection.js'
import * as fields from '../fields.js'

const create = z.looseObject({
  type: fields.name(255),
  name: z.string().max(255).nullable().optional(),
  description: fields.description.nullable().optional(),
  enabled: fields.enabled.optional(),
})

const update = create.partial()

const services: Collection<typeof create, typeof update> = {
  singular: 'service',
  plural: 'services',
  table: 'service',
  create,
  update,
  filters: { type: 'text', name: 'text' },
  shown: ['id', 'type', 'enabled'],
  hidden: ['name', 'description'],
  derive: row => ({
    ...(row.name !== null && { name: row.name }),
    ...(row.description !== null && { description: row.description }),
  }),
}

export const serviceRoutes: readonly IdentityRoute[] = collectionRoutes(services)
