import * as z from 'zod'
import { sql } from '../../database/sql.js'
import { filledText } from '../input.js'
import { findSecret, liveSecret, secretJson } from '../secrets/secret.js'
import type { ConsumerKind } from './kind.js'

/** Consumers of secrets: resources of services, such as an image of Glance. */
export const SECRET_CONSUMERS: ConsumerKind = {
  owner: 'secret',
  live: liveSecret('o'),
  fields: { service: 'service', resource_type: 'resource_type', resource_id: 'resource_id' },
  body: z.object({ service: filledText(255), resource_type: filledText(255), resource_id: filledText(36) }),
  order: sql`c.created_at, c.id`,
  find: findSecret,
  // Includes the consumers at every microversion.
  record: async (database, { base }, id) =>
    (await findSecret<{ json: string }>(database, id, { columns: sql`${secretJson(true)} AS json`, base })).json,
}
