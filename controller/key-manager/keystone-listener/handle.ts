import { setTimeout as delay } from 'node:timers/promises'
import { isDatabaseAway } from '../../database/database-away.js'
import type { Logger } from '../../log/log.js'
import { parseNotification } from './notification.js'

/** Erases whatever the key manager holds of a project: as often as it is called, and also when there is nothing. @returns what it erased */
export type EraseProject = (projectId: string) => Promise<Readonly<Record<string, number>>>

export type HandleOptions = {
  eraseProject: EraseProject
  /** Whether a notification may be put back when its project cannot be erased. */
  allowRequeue: boolean
  log: Logger
  /** Before the first of several tries; 1 s when not given. */
  pauseMs?: number
}

/** What the bus is told of a message: done with, or put back to be delivered again. */
export type Verdict = 'acknowledge' | 'requeue'

const LONGEST_PAUSE_MS = 30_000

/**
 * @returns what handles one message. It resolves once the erasure is committed, or it is known that it will not be. While the database is
 *   away it waits and tries again: that says nothing about the message. Never rejects.
 */
export function createHandler({ eraseProject, allowRequeue, log, pauseMs = 1_000 }: HandleOptions) {
  /** How often in a row the erasure of a project has failed. */
  const failures = new Map<string, number>()
  const pause = (attempt: number, signal: AbortSignal) =>
    delay(Math.min(pauseMs * 2 ** (attempt - 1), LONGEST_PAUSE_MS), undefined, { signal }).catch(() => undefined)

  const erase = async (projectId: string, signal: AbortSignal): Promise<Verdict> => {
    for (let attempt = 1; ; attempt++) {
      try {
        const erased = await eraseProject(projectId)
        failures.delete(projectId)
        log.info({ projectId, erased }, 'project erased')
        return 'acknowledge'
      } catch (error) {
        if (!isDatabaseAway(error)) return failed(projectId, error, signal)
        log.warn({ err: error, projectId }, 'the database is away; the project is erased when it is back')
        await pause(attempt, signal)
        if (signal.aborted) return 'requeue'
      }
    }
  }

  const failed = async (projectId: string, error: unknown, signal: AbortSignal): Promise<Verdict> => {
    if (!allowRequeue) {
      log.error(
        { err: error, projectId },
        'the project could not be erased; `krater key-manager sync-projects` finds and erases it',
      )
      return 'acknowledge'
    }
    const count = (failures.get(projectId) ?? 0) + 1
    failures.set(projectId, count)
    log.error({ err: error, projectId, failures: count }, 'the project could not be erased; it is tried again')
    // The bus would deliver it at once.
    await pause(count, signal)
    return 'requeue'
  }

  /** @param signal cuts waiting short; the message is then put back */
  return async (body: unknown, signal: AbortSignal): Promise<Verdict> => {
    const notification = parseNotification(body)
    switch (notification.kind) {
      case 'ignored':
        log.debug({ eventType: notification.eventType }, 'notification ignored')
        return 'acknowledge'
      case 'malformed':
        log.warn({ reason: notification.reason }, 'a notification that cannot be read is passed over')
        return 'acknowledge'
      case 'project deleted':
        return erase(notification.projectId, signal)
    }
  }
}
