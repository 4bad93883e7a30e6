import { z } from 'zod'
import type { ConsumerKind } from '../consumers/kind.js'
import { CONTAINER_JSON, findContainer, liveContainer } from './container.js'

const text = (most: number) => z.string().min(1, 'must not be empty').max(most, `must have at most ${most} characters`)

/** Consumers of containers: services with an address, as `{"name": "octavia", "URL": "https://..."}`. */
export const CONTAINER_CONSUMERS: ConsumerKind = {
  owner: 'container',
  live: liveContainer('o'),
  fields: { name: 'name', URL: 'url' },
  body: z.object({ name: text(36), URL: text(255) }),
  order: 'c.name, c.url',
  find: findContainer,
  record: async (database, { base }, id) =>
    (await findContainer<{ json: string }>(database, id, { columns: `${CONTAINER_JSON} AS json`, base })).json,
}
