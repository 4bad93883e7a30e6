import { type Claim, claimDue, releaseClaim } from '../../database/claim.js'
import type { Database } from '../../database/connection.js'
import { isDatabaseAway } from '../../database/database-away.js'
import { inTransaction } from '../../database/transaction.js'
import type { Logger } from '../../log/log.js'
import { keepClaim } from '../../worker/keep-claim.js'
import { nameLeaseOwner, releaseClaimsOfDead } from '../../worker/lease-owner.js'
import { listenForWakeUps } from '../../worker/wake-up.js'
import type { EraseProject } from './handle.js'

export type FollowOptions = {
  /** The role of the identity service: its list of deleted projects is all that is touched. */
  identityDatabase: Database
  /** The same database, for the connection that listens. */
  identityDatabaseUrl: string
  eraseProject: EraseProject
  log: Logger
  /** Shown in lease_owner; unique for every start. */
  owner?: string
  /** Between two looks that nothing has asked for. */
  sweepMs?: number
  /**
   * A request that was let in before the deletion may still store something after the first erasure. A project is erased once more when
   * this has passed, longer than any request lasts and any answer about a token is remembered.
   */
  graceSeconds?: number
}

/** Where the identity service says that its list has grown. */
const CHANNEL = 'krater_deleted_projects'
const LONGEST_RETRY_SECONDS = 300

/**
 * Erases what the key manager holds of projects that our own identity service has deleted, until stopped. The list of them is written by the
 * transaction that deletes a project, and a row leaves it only after the erasure is committed: nothing is lost when a process dies in
 * between, or while none runs. Any number may follow one list.
 */
export async function followDeletedProjects(options: FollowOptions): Promise<{ stop: () => Promise<void> }> {
  const { identityDatabase, log, owner = nameLeaseOwner(), sweepMs = 10_000 } = options
  let stopping = false
  let woken = false
  let wakeUp = () => {
    woken = true
  }

  /** Until a wake-up, or the next row is due. */
  const pause = (milliseconds: number) =>
    new Promise<void>(resolve => {
      const timer = setTimeout(resolve, milliseconds)
      wakeUp = () => {
        woken = true
        clearTimeout(timer)
        resolve()
      }
      if (woken || stopping) wakeUp()
    })

  const follow = async () => {
    while (!stopping) {
      woken = false
      try {
        if (await handleNext(options, owner)) continue
        await pause(Math.min(sweepMs, await millisecondsUntilDue(identityDatabase)))
      } catch (error) {
        const what = isDatabaseAway(error) ? 'database away' : 'following deleted projects failed'
        log.warn({ err: error }, `${what}; trying again`)
        await pause(Math.min(sweepMs, 1_000))
      }
    }
  }

  await releaseClaimsOfDead(identityDatabase, 'deleted_project').catch(() => [])
  const wakeUps = await listenForWakeUps({
    databaseUrl: options.identityDatabaseUrl,
    channel: CHANNEL,
    onWake: () => wakeUp(),
    log,
  })
  const following = follow()
  return {
    stop: async () => {
      stopping = true
      wakeUp()
      await wakeUps.stop()
      await following
    },
  }
}

/** Takes one row of the list that is due and that nobody holds, and does what it asks for. @returns false when there is none */
async function handleNext(options: FollowOptions, owner: string): Promise<boolean> {
  const { identityDatabase, eraseProject, log, graceSeconds = 900 } = options
  const [claim] = await claimDue(identityDatabase, {
    table: 'deleted_project',
    due: 't.due_at <= now()',
    order: 't.due_at, t.id',
    owner,
    limit: 1,
  })
  if (claim === undefined) return false
  const letGo = keepClaim(identityDatabase, claim, log, () => undefined)
  try {
    if (await standsAgain(identityDatabase, claim.id)) {
      log.warn({ projectId: claim.id }, 'a deleted project is there again; it is not erased')
      await identityDatabase('deleted_project').where({ id: claim.id, fence: claim.fence }).delete()
      return true
    }
    const erased = await eraseProject(claim.id)
    const found = Object.values(erased).some(count => count > 0)
    log[found ? 'info' : 'debug']({ projectId: claim.id, erased }, 'project erased')
    await settle(identityDatabase, claim, graceSeconds)
  } catch (error) {
    log.error({ err: error, projectId: claim.id }, 'the project could not be erased; it is tried again')
    await postpone(identityDatabase, claim)
  } finally {
    letGo()
  }
  return true
}

/** From a backup, say: ids are never given twice. */
async function standsAgain(database: Database, id: string): Promise<boolean> {
  return (await database('project').where({ id }).first('id')) !== undefined
}

/** Takes the row off the list when its time of grace was over before the erasure began; else it is due again when that is over. */
async function settle(database: Database, claim: Claim, graceSeconds: number): Promise<void> {
  await inTransaction(database, async trx => {
    const row = trx('deleted_project').where({ id: claim.id, fence: claim.fence })
    const removed = await row
      .clone()
      .whereRaw(`deleted_at + ? * interval '1 second' <= ?::timestamptz`, [graceSeconds, claim.claimedAt])
      .delete()
    if (removed > 0) return
    await row
      .clone()
      .where('deleted_at', '<=', claim.claimedAt)
      .update({ due_at: trx.raw(`deleted_at + ? * interval '1 second'`, [graceSeconds]), failures: 0 })
    await releaseClaim(trx, claim)
  })
}

async function postpone(database: Database, claim: Claim): Promise<void> {
  await database('deleted_project')
    .where({ id: claim.id, fence: claim.fence })
    .update({
      failures: database.raw('failures + 1'),
      due_at: database.raw(`now() + least(power(2, least(failures, 20)), ?) * interval '1 second'`, [
        LONGEST_RETRY_SECONDS,
      ]),
      lease_owner: null,
      lease_until: null,
    })
}

async function millisecondsUntilDue(database: Database): Promise<number> {
  const { rows } = await database.raw(
    'SELECT extract(epoch FROM min(greatest(due_at, lease_until)) - now())::float8 AS seconds FROM deleted_project',
  )
  const seconds: number | null = rows[0].seconds
  return seconds === null ? Number.POSITIVE_INFINITY : Math.max(50, seconds * 1000)
}
