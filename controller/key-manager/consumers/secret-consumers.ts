import { z } from 'zod'
import { findSecret, liveSecret, secretJson } from '../secrets/secret.js'
import type { ConsumerKind } from './kind.js'

const text = (most: number) => z.string().min(1, 'must not be empty').max(most, `must have at most ${most} characters`)

/** Consumers of secrets: resources of services, as `{"service": "image", "resource_type": "image", "resource_id": "<id>"}`. */
export const SECRET_CONSUMERS: ConsumerKind = {
  owner: 'secret',
  live: liveSecret('o'),
  fields: { service: 'service', resource_type: 'resource_type', resource_id: 'resource_id' },
  body: z.object({ service: text(255), resource_type: text(255), resource_id: text(36) }),
  order: 'c.created_at, c.id',
  find: findSecret,
  // With the consumers at every microversion.
  record: async (database, { base }, id) =>
    (await findSecret<{ json: string }>(database, id, { columns: `${secretJson(true)} AS json`, base })).json,
}
