import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, maybeOne } from '../../../database/query.js'
import { json, sql } from '../../../database/sql.js'

const stored = z.object({
  /** The directory and the order there. */
  directory: z.string(),
  order: z.string(),
  /** Milliseconds since 1970. */
  startedAt: z.number(),
  /** URLs of the challenges that the CA was told to validate. */
  answered: z.array(z.string()),
  /** URLs of the authorizations that this project proves: stored before the CA is told to validate. */
  proving: z.array(z.string()).default([]),
  /** URLs of authorizations to end before another order takes the place of this one. */
  unproven: z.array(z.string()).default([]),
  /** Whether the order took the place of one with authorizations that others had proven. */
  isAnew: z.boolean().default(false),
})

/** How far a certificate has come at its CA: enough to go on after a crash. */
export type OrderState = z.output<typeof stored>

/** Null for a certificate that has not begun at this directory. */
export async function readState(database: Database, requestId: string, directory: string): Promise<OrderState | null> {
  const found = await maybeOne(
    database,
    sql<{ state: unknown }>`SELECT state FROM pending_certificate WHERE id = ${requestId}`,
  )
  const state = stored.safeParse(found?.state).data ?? null
  return state?.directory === directory ? state : null
}

export async function writeState(
  database: Database,
  { requestId, projectId }: { requestId: string; projectId: string },
  state: OrderState | null,
): Promise<void> {
  await execute(
    database,
    sql`INSERT INTO pending_certificate (id, project_id, state) VALUES (${requestId}, ${projectId}, ${json(state ?? {})}::jsonb)
        ON CONFLICT (id) DO UPDATE SET state = EXCLUDED.state`,
  )
}

/** Whether a pending certificate of the project, or of any other one, proves an authorization. */
export async function whoProves(database: Database, projectId: string, url: string): Promise<'own' | 'other' | null> {
  const found = await maybeOne(
    database,
    sql<{ own: boolean }>`
      SELECT bool_or(project_id = ${projectId}) AS own FROM pending_certificate
       WHERE state->'proving' @> ${json([url])}::jsonb HAVING count(*) > 0`,
  )
  if (found === undefined) return null
  return found.own ? 'own' : 'other'
}

/**
 * Counts an order that a project is about to create, unless it has had as many within a day.
 * @returns the id of the count; null if it may not
 */
export async function countOrder(database: Database, projectId: string, perDay: number): Promise<string | null> {
  const counted = await maybeOne(
    database,
    sql<{ id: string }>`INSERT INTO acme_client_order (project_id)
        SELECT ${projectId} WHERE (SELECT count(*) FROM acme_client_order
                                    WHERE project_id = ${projectId} AND created_at > now() - interval '1 day') < ${perDay}
        RETURNING id`,
  )
  return counted?.id ?? null
}

/** Takes a count back: the CA has made no order. */
export async function uncountOrder(database: Database, id: string): Promise<void> {
  await execute(database, sql`DELETE FROM acme_client_order WHERE id = ${id}`)
}
