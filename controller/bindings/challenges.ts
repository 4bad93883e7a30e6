import * as z from 'zod'
import { type KeyChannel, KeyChannelDown } from '../../amphora-agent/key-channel/client.js'
import type { Database } from '../database/connection.js'
import { many } from '../database/query.js'
import { json, sql, trusted } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'

const challenge = z.object({
  id: z.uuid(),
  project_id: z.string(),
  type: z.enum(['http-01', 'tls-alpn-01']),
  identifier: z.string(),
  token: z.string(),
  key_authorization: z.string(),
  digest: z.string(),
})

const answerSchema = z.object({ challenges: z.array(challenge) })

type Published = z.output<typeof challenge>

/** How long a challenge waits for further load balancers of its project, once one answers it. */
const WAIT_SECONDS = 10

export type ChallengesOptions = {
  channel: KeyChannel
  /** The role of the load balancer service. */
  database: Database
}

/** Lets load balancers answer what CAs ask for. */
export type Challenges = {
  /**
   * Takes over the challenges that the key manager publishes, and tells it which ones load balancers answer. Costs one
   * request while there are none.
   * @returns how many are new or gone
   * @throws KeyChannelDown
   */
  tend: () => Promise<number>
}

export function createChallenges({ channel, database }: ChallengesOptions): Challenges {
  let isKnownEmpty = false
  return {
    tend: async () => {
      const published = await read(channel)
      if (published.length === 0 && isKnownEmpty) return 0
      const changed = await takeOver(database, published)
      isKnownEmpty = published.length === 0
      const answered = isKnownEmpty ? [] : await answeredBy(database)
      if (answered.length > 0) await report(channel, answered)
      return changed
    },
  }
}

async function read(channel: KeyChannel): Promise<Published[]> {
  const { status, bytes } = await channel.send({ method: 'GET', path: '/v1/challenges' })
  if (status !== 200) throw new KeyChannelDown(`The key manager does not list challenges (status ${status}).`)
  return answerSchema.parse(JSON.parse(bytes.toString())).challenges
}

async function report(channel: KeyChannel, ids: readonly string[]): Promise<void> {
  const { status } = await channel.send({ method: 'PUT', path: '/v1/challenges/answered', body: { ids } })
  if (status !== 204) throw new KeyChannelDown(`The key manager does not take answered challenges (status ${status}).`)
}

/** SQL over the alias b (load_balancer): it has an enabled listener of this protocol. */
const hasListener = (protocol: 'HTTP' | 'TERMINATED_HTTPS') =>
  trusted(
    `EXISTS (SELECT FROM listener l WHERE l.load_balancer_id = b.id AND l.protocol = '${protocol}' AND l.admin_state_up AND l.change <> 'delete')`,
  )

/** SQL over the aliases b and c (acme_challenge): as answeredChallenges decides. */
const ANSWERS = sql`(b.project_id = c.project_id AND b.admin_state_up AND b.change <> 'delete'
  AND CASE c.type WHEN 'http-01' THEN ${hasListener('HTTP')}
                  ELSE ${hasListener('TERMINATED_HTTPS')} AND NOT ${hasListener('HTTP')} END)`

/** Stores exactly the published challenges, and wakes the load balancers that answer those that are new or gone. */
async function takeOver(database: Database, published: readonly Published[]): Promise<number> {
  const changed = await many(
    database,
    sql<{ id: string }>`
      WITH published AS (
        SELECT * FROM jsonb_to_recordset(${json(published)}::jsonb)
                   AS p (id uuid, project_id text, type text, identifier text, token text, key_authorization text, digest text)),
      gone AS (
        DELETE FROM acme_challenge c WHERE NOT EXISTS (SELECT FROM published p WHERE p.id = c.id)
        RETURNING c.id, c.project_id, c.type),
      added AS (
        INSERT INTO acme_challenge (id, project_id, type, identifier, token, key_authorization, digest)
        SELECT * FROM published ON CONFLICT (id) DO NOTHING RETURNING id, project_id, type),
      changed AS (TABLE gone UNION ALL TABLE added),
      woken AS (
        UPDATE load_balancer b SET recheck_at = now(), retry_at = least(retry_at, now())
         WHERE EXISTS (SELECT FROM changed c WHERE ${ANSWERS})
        RETURNING pg_notify(${WAKE_CHANNEL}, b.id::text))
      SELECT changed.id FROM changed LEFT JOIN (SELECT count(*) FROM woken) AS all_woken ON true`,
  )
  return changed.length
}

/** Challenges that a load balancer answers, and all others of the project that should, unless they take too long. */
async function answeredBy(database: Database): Promise<string[]> {
  const rows = await many(
    database,
    sql<{ id: string }>`
      SELECT c.id FROM acme_challenge c
       WHERE EXISTS (SELECT FROM load_balancer b WHERE ${ANSWERS} AND c.id = ANY(b.answered_challenges))
         AND (c.created_at < now() - ${WAIT_SECONDS} * interval '1 second'
              OR NOT EXISTS (SELECT FROM load_balancer b
                              WHERE ${ANSWERS} AND b.fault IS NULL AND c.id <> ALL(b.answered_challenges)))`,
  )
  return rows.map(({ id }) => id)
}
