import { setTimeout as delay } from 'node:timers/promises'
import type { Database } from '../../../database/connection.js'
import { execute, many, maybeOne } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { inTransaction } from '../../../database/transaction.js'
import { newId } from '../../ids.js'
import { type Challenge, type ChallengePublisher, NotServed } from './challenges.js'

/** Notified when the challenges of a project change. The payload is the project. */
const CHALLENGE_CHANNEL = 'krater_published_challenge'

/** How long one attempt waits for load balancers to serve a challenge. */
const WAIT_MS = 3_000
const POLL_MS = 100

const keyOf = ({ requestId, type, token }: Challenge): Fragment =>
  sql`request_id = ${requestId} AND type = ${type} AND token = ${token}`

/**
 * Stores a challenge, unless it is stored. A CA may give two orders the same open authorization: of two projects, only
 * the first publishes it, for else one would prove the name for the other.
 * @returns whether it is being served
 */
export async function storeChallenge(database: Database, challenge: Challenge): Promise<boolean> {
  const { requestId, projectId, type, identifier, token, keyAuthorization, digest, expiresAt } = challenge
  const stored = await inTransaction(database, async trx => {
    await execute(trx, sql`SELECT pg_advisory_xact_lock(hashtextextended(${`challenge ${token}`}, 0))`)
    return maybeOne(
      trx,
      sql`INSERT INTO published_challenge (id, request_id, project_id, type, identifier, token, key_authorization, digest, expires_at)
          SELECT ${newId()}::uuid, ${requestId}::uuid, ${projectId}, ${type}, ${identifier}, ${token}, ${keyAuthorization}, ${digest}::bytea,
                 ${expiresAt}::timestamptz
           WHERE NOT EXISTS (SELECT FROM published_challenge p WHERE p.token = ${token} AND p.project_id <> ${projectId})
          ON CONFLICT (request_id, type, token) DO NOTHING
          RETURNING pg_notify(${CHALLENGE_CHANNEL}, project_id)`,
    )
  })
  return stored === undefined && isServed(database, challenge)
}

async function isServed(database: Database, challenge: Challenge): Promise<boolean> {
  const found = await maybeOne(
    database,
    sql`SELECT 1 FROM published_challenge WHERE ${keyOf(challenge)} AND served_at IS NOT NULL`,
  )
  return found !== undefined
}

/** Records that a challenge is being served. */
export async function markServed(database: Database, challenge: Challenge): Promise<void> {
  await execute(database, sql`UPDATE published_challenge SET served_at = now() WHERE ${keyOf(challenge)}`)
}

export async function removeChallenge(database: Database, challenge: Challenge): Promise<void> {
  await execute(
    database,
    sql`DELETE FROM published_challenge WHERE ${keyOf(challenge)} RETURNING pg_notify(${CHALLENGE_CHANNEL}, project_id)`,
  )
}

/** The stored challenges that match a condition (alias p). */
export const challengesWhere = (database: Database, condition: Fragment): Promise<Challenge[]> =>
  many(
    database,
    sql<Challenge>`
      SELECT p.request_id AS "requestId", p.project_id AS "projectId", p.type, p.identifier, p.token,
             p.key_authorization AS "keyAuthorization", p.digest, p.expires_at AS "expiresAt"
        FROM published_challenge p WHERE ${condition} ORDER BY p.created_at, p.id`,
  )

/** Publishes challenges as rows, which the load balancers of the project read, serve and mark as served. */
export const rowPublisher = (database: Database): ChallengePublisher => ({
  publish: async (challenge, signal) => {
    const until = performance.now() + WAIT_MS
    let served = await storeChallenge(database, challenge)
    while (!served && performance.now() < until) {
      await delay(POLL_MS, undefined, { signal })
      served = await isServed(database, challenge)
    }
    if (!served)
      throw new NotServed(`No load balancer of the project serves the challenge for ${challenge.identifier} yet.`)
  },
  withdraw: challenge => removeChallenge(database, challenge),
})
