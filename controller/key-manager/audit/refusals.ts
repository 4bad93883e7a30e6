import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import { type Actor, type AuditEntry, recordAudit } from './record.js'

export type Refusal = AuditEntry & { detail: { status: number } }

/** Records a refusal, or counts it when its caller has had many. */
export type RecordRefusal = (actor: Actor, refusal: Refusal) => Promise<void>

export type RefusalLog = {
  record: RecordRefusal
  /** Records at once what was only counted so far: for a process that ends. */
  flush: () => Promise<void>
}

/** Refusals of one caller within a window that have a record each. */
const MOST_SINGLE = 20
const WINDOW_MS = 60_000

type Window = { single: number; counted: Map<string, Counted>; timer: NodeJS.Timeout }
type Counted = { actor: Actor; refusal: Refusal; since: string; count: number }

/**
 * Keeps what callers may not do from filling the audit log: of each caller in a project the first refusals in a minute have a record each, the others one
 * record of each kind, with their number, at the end of that minute, or when the process stops. A process that is killed takes the numbers of its last
 * minute with it.
 */
export function createRefusalLog(database: Database, log: Logger, windowMs = WINDOW_MS): RefusalLog {
  const windows = new Map<string, Window>()
  const underWay = new Set<Promise<void>>()

  const close = (caller: string): Promise<void> => {
    const window = windows.get(caller)
    windows.delete(caller)
    clearTimeout(window?.timer)
    const writing = write(window).finally(() => underWay.delete(writing))
    underWay.add(writing)
    return writing
  }

  const write = async (window: Window | undefined): Promise<void> => {
    try {
      for (const { actor, refusal, since, count } of window?.counted.values() ?? []) {
        const { detail, ...entry } = refusal
        await recordAudit(database, actor, { ...entry, targetId: null, detail: { ...detail, refusals: count, since } })
      }
    } catch (error) {
      log.error({ err: error }, 'refusals could not be recorded')
    }
  }

  const open = (caller: string): Window => {
    const timer = setTimeout(() => void close(caller), windowMs).unref()
    const window: Window = { single: 0, counted: new Map(), timer }
    windows.set(caller, window)
    return window
  }

  const record: RecordRefusal = async (actor, refusal) => {
    const caller = JSON.stringify([actor.userId, actor.projectId])
    const window = windows.get(caller) ?? open(caller)
    if (window.single < MOST_SINGLE) {
      window.single++
      return recordAudit(database, actor, refusal)
    }
    const kind = JSON.stringify([refusal.action, refusal.detail.status])
    const counted = window.counted.get(kind) ?? { actor, refusal, since: new Date().toISOString(), count: 0 }
    window.counted.set(kind, { ...counted, count: counted.count + 1 })
  }

  return {
    record,
    flush: async () => {
      for (const caller of [...windows.keys()]) await close(caller)
      await Promise.all(underWay)
    },
  }
}
