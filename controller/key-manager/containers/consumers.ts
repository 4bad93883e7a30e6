import * as z from 'zod'
import { sql } from '../../database/sql.js'
import type { ConsumerKind } from '../consumers/kind.js'
import { filledText } from '../input.js'
import { CONTAINER_JSON, findContainer, liveContainer } from './container.js'

/** Consumers of containers: services with a URL, such as `{"name": "octavia", "URL": "https://..."}`. */
export const CONTAINER_CONSUMERS: ConsumerKind = {
  owner: 'container',
  live: liveContainer('o'),
  fields: { name: 'name', URL: 'url' },
  body: z.object({ name: filledText(36), URL: filledText(255) }),
  order: sql`c.name, c.url`,
  find: findContainer,
  record: async (database, { base }, id) =>
    (await findContainer<{ json: string }>(database, id, { columns: sql`${CONTAINER_JSON} AS json`, base })).json,
}
