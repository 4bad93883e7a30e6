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
  /** The role of the identity service: its list of deleted projects is changed, its projects are looked at. */
  identityDatabase: Database
  /** The same database, for the connection that listens. */
  identityDatabaseUrl: string
  eraseProject: EraseProject
  log: Logger
  /** Longest pause between two polls that nobody asked for. */
  sweepMs?: number
  /**
   * A request that was let in before the deletion may still store something after the first erasure. A project is erased once more when
   * this has passed since, longer than any request lasts and any answer about a token is remembered.
   */
  graceSeconds?: number
}

/** Where the identity service says that its list has grown. */
const CHANNEL = 'krater_deleted_projects'
const CONCURRENCY = 4
const LONGEST_RETRY_SECONDS = 300

/**
 * Erases what the key manager holds of projects that our own identity service has deleted, until stopped. The list of them is written by the
 * transaction that deletes a project, and a row leaves it only after the erasure is committed: nothing is lost when a process dies in
 * between, or while none runs. Any number may follow one list.
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

/** Does what one row of the list asks for. @returns seconds until it is to be tried again; null when nothing is to follow soon */
async function attempt({ identityDatabase, eraseProject, log, graceSeconds = 900 }: FollowOptions, claim: Claim) {
  try {
    if (await standsAgain(identityDatabase, claim.id)) {
      log.warn({ projectId: claim.id }, 'a deleted project is there again; it is not erased')
      await execute(identityDatabase, sql`DELETE FROM deleted_project WHERE ${isHeldBy(claim)}`)
      return null
    }
    const erased = await eraseProject(claim.id)
    const found = Object.values(erased).some(count => count > 0)
    log[found ? 'info' : 'debug']({ projectId: claim.id, erased }, 'project erased')
    await settle(identityDatabase, claim, graceSeconds)
    return null
  } catch (error) {
    log.error({ err: error, projectId: claim.id }, 'the project could not be erased; it is tried again')
    // When this fails too, the claim ends by itself.
    return postpone(identityDatabase, claim).catch(() => null)
  }
}

const isHeldBy = ({ id, fence }: Claim): Fragment => sql`id = ${id} AND fence = ${fence}`

/** From a backup, say: ids are never given twice. */
async function standsAgain(database: Database, id: string): Promise<boolean> {
  return (await maybeOne(database, sql`SELECT id FROM project WHERE id = ${id}`)) !== undefined
}

/** Takes the row off the list when its time of grace was over before the erasure began; else it is due again when that is over. */
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
            due_at = now() + least(power(2, least(failures, 20)), ${LONGEST_RETRY_SECONDS}) * interval '1 second'
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
