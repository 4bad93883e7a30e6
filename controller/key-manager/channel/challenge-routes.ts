import * as z from 'zod'
import { type Answer, jsonAnswer, NO_CONTENT } from '../../api/answer.js'
import { execute, many } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { type ChannelCall, type ChannelService, route } from './dialect.js'

const MAX_CHALLENGES = 10_000

const answered = z.strictObject({ ids: z.array(z.uuid()).max(MAX_CHALLENGES) }).meta({ title: 'answered challenges' })

/** Challenges of external CAs that load balancers answer. */
export const challengeRoutes = [
  route({
    group: 'challenges',
    method: 'GET',
    path: '/v1/challenges',
    right: 'controller',
    summary: 'List the challenges that load balancers are to answer',
    status: 200,
    answer: { type: 'object' },
    handle: listChallenges,
  }),
  route({
    group: 'challenges',
    method: 'PUT',
    path: '/v1/challenges/answered',
    right: 'controller',
    summary: 'Say which challenges load balancers answer',
    status: 204,
    request: answered,
    handle: async ({ database }: ChannelService, call: ChannelCall<z.output<typeof answered>>) => {
      const { ids } = await call.body()
      await execute(
        database,
        sql`UPDATE published_challenge SET served_at = now() WHERE id = ANY(${ids}::uuid[]) AND served_at IS NULL`,
      )
      return NO_CONTENT
    },
  }),
]

type Row = {
  id: string
  project_id: string
  type: string
  identifier: string
  token: string
  key_authorization: string
  digest: string
}

/**
 * What an agent of an amphora would refuse is not listed: tokens come from other people's CAs. If there are too many, each
 * project has its share.
 */
async function listChallenges({ database }: ChannelService): Promise<Answer> {
  const challenges = await many(
    database,
    sql<Row>`
      SELECT id, project_id, type, identifier, token, key_authorization, encode(digest, 'hex') AS digest
        FROM published_challenge
       WHERE type IN ('http-01', 'tls-alpn-01') AND expires_at > now() AND length(identifier) <= 253
         AND length(token) <= 256 AND token ~ '^[A-Za-z0-9_-]+$'
       ORDER BY row_number() OVER (PARTITION BY project_id ORDER BY created_at, id), created_at, id
       LIMIT ${MAX_CHALLENGES}`,
  )
  return jsonAnswer(200, { challenges })
}
