import { z } from 'zod'
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

/**
 * Counts an order that a project is about to create, unless it has had as many within a day.
 * @returns whether it may
 */
export async function mayBegin(database: Database, projectId: string, perDay: number): Promise<boolean> {
  const counted = await execute(
    database,
    sql`INSERT INTO acme_client_order (project_id)
        SELECT ${projectId} WHERE (SELECT count(*) FROM acme_client_order
                                    WHERE project_id = ${projectId} AND created_at > now() - interval '1 day') < ${perDay}
        RETURNING id`,
  )
  return counted === 1
}
