import type { Database } from '../../database/connection.js'
import { execute, maybeOne, one } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import type { Logger } from '../../log/log.js'
import { type Claim, releaseClaim } from '../../queue/claim.js'
import { startClaimLoop } from '../../queue/claim-loop.js'
import { nameLeaseOwner, releaseDeadClaims } from '../../queue/lease-owner.js'
import { listenForWakeUps } from '../../queue/wake-up.js'
import type { EraseProject } from './handle.js'

export type FollowOptions = {
  /** Connects with the identity service's role: reads its projects, changes its list of deleted ones. */
  identityDatabase: Database
  /** The same database, for the listening connection. */
  identityDatabaseUrl: string
  eraseProject: EraseProject
  log: Logger
  /** Maximum pause between two polls without a wake-up. */
  sweepMs?: number
  /**
   * A request admitted before the deletion may store something after the first erasure. So a project is erased
   * again this long after its deletion: longer than any request lasts and than any token's validation is cached.
   */
  graceSeconds?: number
}

/** The identity service notifies this channel of new rows. */
const CHANNEL = 'krater_deleted_projects'
const CONCURRENCY = 4
const MAX_RETRY_SECONDS = 300

/**
 * Until stopped, erases what the key manager holds of projects that our own identity service deleted. The
 * transaction that deletes a project adds it to the list, and its row is removed only after the erasure is
 * committed. So nothing is lost when a process dies or none runs. Any number of processes may follow one list.
 */
export async function followDeletedProjects(options: FollowOptions): Promise<{ stop: () => Promise<void> }> {
  const { identityDatabase, log, sweepMs = 10_000 } = options
  await releaseDeadClaims(identityDatabase, 'deleted_project').catch(() => [])
  const loop = startClaimLoop({
    database: identityDatabase,
    claims: {
      table: 'deleted_project',
      due: sql`t.due_at <= now()`,
      order: sql`t.due_at, t.id`,
      owner: nameLeaseOwner(),
    },
    concurrency: CONCURRENCY,
    sweepMs,
    secondsUntilDue: () => secondsUntilDue(identityDatabase),
    attempt: claim => attempt(options, claim),
    log,
  })
  const wakeUps = await listenForWakeUps({
    databaseUrl: options.identityDatabaseUrl,
    channel: CHANNEL,
    onWake: loop.wake,
    log,
  })
  return {
    stop: async () => {
      await wakeUps.stop()
      await loop.stop()
    },
  }
}

/** Handles one row of the list. @returns seconds until a retry, or null without one */
async function attempt({ identityDatabase, eraseProject, log, graceSeconds = 900 }: FollowOptions, claim: Claim) {
  try {
    if (await projectExists(identityDatabase, claim.id)) {
      log.warn({ projectId: claim.id }, 'a deleted project exists again; not erasing it')
      await execute(identityDatabase, sql`DELETE FROM deleted_project WHERE ${isHeldBy(claim)}`)
      return null
    }
    const erased = await eraseProject(claim.id)
    const found = Object.values(erased).some(count => count > 0)
    log[found ? 'info' : 'debug']({ projectId: claim.id, erased }, 'project erased')
    await settle(identityDatabase, claim, graceSeconds)
    return null
  } catch (error) {
    log.error({ err: error, projectId: claim.id }, 'could not erase the project; retrying')
    // If this fails too, the claim expires.
    return postpone(identityDatabase, claim).catch(() => null)
  }
}

const isHeldBy = ({ id, fence }: Claim): Fragment => sql`id = ${id} AND fence = ${fence}`

/** Such as one restored from a backup: ids are never reused. */
async function projectExists(database: Database, id: string): Promise<boolean> {
  return (await maybeOne(database, sql`SELECT id FROM project WHERE id = ${id}`)) !== undefined
}

/** Removes the row if the erasure began after the grace period. Otherwise the row is due again when that ends. */
async function settle(database: Database, claim: Claim, graceSeconds: number): Promise<void> {
  await inTransaction(database, async trx => {
    const graceEnds = sql`deleted_at + ${graceSeconds} * interval '1 second'`
    const removed = await execute(
      trx,
      sql`DELETE FROM deleted_project WHERE ${isHeldBy(claim)} AND ${graceEnds} <= ${claim.claimedAt}::timestamptz`,
    )
    if (removed > 0) return
    await execute(trx, sql`UPDATE deleted_project SET due_at = ${graceEnds}, failures = 0 WHERE ${isHeldBy(claim)}`)
    await releaseClaim(trx, claim)
  })
}

/** @returns seconds until the row is due again: 1, 2, 4 ... 300; null when the claim was lost */
async function postpone(database: Database, claim: Claim): Promise<number | null> {
  const row = await maybeOne(
    database,
    sql<{ seconds: number }>`
     UPDATE deleted_project
        SET failures = failures + 1, lease_owner = NULL, lease_until = NULL,
            due_at = now() + least(power(2, least(failures, 20)), ${MAX_RETRY_SECONDS}) * interval '1 second'
      WHERE ${isHeldBy(claim)}
      RETURNING extract(epoch FROM due_at - now())::float8 AS seconds`,
  )
  return row?.seconds ?? null
}

async function secondsUntilDue(database: Database): Promise<number | null> {
  const { seconds } = await one(
    database,
    sql<{ seconds: number | null }>`
      SELECT extract(epoch FROM min(greatest(due_at, lease_until)) - now())::float8 AS seconds FROM deleted_project`,
  )
  return seconds
}
