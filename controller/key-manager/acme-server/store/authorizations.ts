import type { Knex } from 'knex'
import { execute, maybeOne } from '../../../database/query.js'
import { type Fragment, sql } from '../../../database/sql.js'
import { isId } from '../../ids.js'
import type { Identifier, Problem } from '../problem.js'
import type { AuthorizationFacts, ChallengeStatus } from '../rules/state.js'
import { CHALLENGE_CHANNEL } from '../wake-channel.js'

export type Challenge = {
  id: string
  type: string
  token: string
  status: ChallengeStatus
  error: Problem | null
  validatedAt: Date | null
}

export type Authorization = AuthorizationFacts & {
  id: string
  accountId: string
  identifier: Identifier
  wildcard: boolean
  details: readonly Challenge[]
}

type Row = Omit<Authorization, 'challenges' | 'identifier' | 'details'> & {
  type: Identifier['type']
  value: string
  details: readonly (Omit<Challenge, 'validatedAt'> & { validatedAt: string | null })[]
}

const COLUMNS = sql`z.id, z.account_id AS "accountId", z.type, z.value, z.wildcard, z.expires_at AS "expiresAt",
  z.deactivated_at IS NOT NULL AS deactivated,
  (SELECT json_agg(json_build_object('id', c.id, 'type', c.type, 'token', c.token, 'status', c.status, 'error', c.error,
            'validatedAt', CASE WHEN c.status = 'valid' THEN c.settled_at END) ORDER BY c.position)
     FROM acme_challenge c WHERE c.authorization_id = z.id) AS details
  FROM acme_authorization z`

async function find(database: Knex, condition: Fragment): Promise<Authorization | null> {
  const row = await maybeOne(database, sql<Row>`SELECT ${COLUMNS} WHERE ${condition}`)
  if (row === undefined) return null
  const { type, value, details, ...rest } = row
  return {
    ...rest,
    identifier: { type, value },
    challenges: details.map(({ status }) => status),
    details: details.map(each => ({
      ...each,
      validatedAt: each.validatedAt === null ? null : new Date(each.validatedAt),
    })),
  }
}

export const findAuthorization = async (database: Knex, id: string): Promise<Authorization | null> =>
  isId(id) ? find(database, sql`z.id = ${id}`) : null

/** The authorization of a challenge. */
export const findByChallenge = async (database: Knex, id: string): Promise<Authorization | null> =>
  isId(id) ? find(database, sql`z.id = (SELECT authorization_id FROM acme_challenge WHERE id = ${id})`) : null

export async function deactivateAuthorization(database: Knex, id: string): Promise<void> {
  await execute(
    database,
    sql`UPDATE acme_authorization SET deactivated_at = now() WHERE id = ${id} AND deactivated_at IS NULL`,
  )
}

/** Queues a pending challenge for validation, and wakes a validator. */
export async function startChallenge(database: Knex, id: string): Promise<void> {
  await execute(
    database,
    sql`WITH begun AS (
          UPDATE acme_challenge SET status = 'processing', responded_at = clock_timestamp()
           WHERE id = ${id} AND status = 'pending' RETURNING id)
        SELECT pg_notify(${CHALLENGE_CHANNEL}::text, '') FROM begun`,
  )
}
