import { setTimeout as delay } from 'node:timers/promises'
import { isDatabaseAway } from '../../database/database-away.js'
import type { Logger } from '../../log/log.js'
import { parseNotification } from './notification.js'

/** Erases everything the key manager holds for a project. Safe to repeat. @returns the erased objects, by kind */
export type EraseProject = (projectId: string) => Promise<Readonly<Record<string, number>>>

export type HandleOptions = {
  eraseProject: EraseProject
  /** Whether to requeue a notification when its project cannot be erased. */
  allowRequeue: boolean
  log: Logger
  /** Before the first retry. Default: 1 s. */
  pauseMs?: number
}

/** What to do with a message. The bus delivers a requeued message again. */
export type Verdict = 'acknowledge' | 'requeue'

const MAX_PAUSE_MS = 30_000

/**
 * @returns a handler of one message, which never rejects. It resolves when the erasure is committed or has failed
 *   for good. While the database is unavailable, it retries: that is not the message's fault.
 */
export function createHandler({ eraseProject, allowRequeue, log, pauseMs = 1_000 }: HandleOptions) {
  /** Consecutive failed erasures, by project. */
  const failures = new Map<string, number>()
  const pause = (attempt: number, signal: AbortSignal) =>
    delay(Math.min(pauseMs * 2 ** (attempt - 1), MAX_PAUSE_MS), undefined, { signal }).catch(() => undefined)

  const erase = async (projectId: string, signal: AbortSignal): Promise<Verdict> => {
    for (let attempt = 1; ; attempt++) {
      try {
        const erased = await eraseProject(projectId)
        failures.delete(projectId)
        log.info({ projectId, erased }, 'project erased')
        return 'acknowledge'
      } catch (error) {
        if (!isDatabaseAway(error)) return failed(projectId, error, signal)
        log.warn({ err: error, projectId }, 'the database is unavailable; retrying to erase the project')
        await pause(attempt, signal)
        if (signal.aborted) return 'requeue'
      }
    }
  }

  const failed = async (projectId: string, error: unknown, signal: AbortSignal): Promise<Verdict> => {
    if (!allowRequeue) {
      log.error(
        { err: error, projectId },
        'could not erase the project; run `krater key-manager sync-projects` to erase it',
      )
      return 'acknowledge'
    }
    const count = (failures.get(projectId) ?? 0) + 1
    failures.set(projectId, count)
    log.error({ err: error, projectId, failures: count }, 'could not erase the project; retrying')
    // The bus delivers a requeued message at once.
    await pause(count, signal)
    return 'requeue'
  }

  /** @param signal ends waiting and requeues the message */
  return async (body: unknown, signal: AbortSignal): Promise<Verdict> => {
    const notification = parseNotification(body)
    switch (notification.kind) {
      case 'ignored':
        log.debug({ eventType: notification.eventType }, 'notification ignored')
        return 'acknowledge'
      case 'malformed':
        log.warn({ reason: notification.reason }, 'ignoring a malformed notification')
        return 'acknowledge'
      case 'project deleted':
        return erase(notification.projectId, signal)
    }
  }
}
