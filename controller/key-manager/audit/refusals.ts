import type { Database } from '../../database/connection.js'
import type { Logger } from '../../log/log.js'
import { type Actor, type AuditEntry, recordAudit } from './record.js'

export type Refusal = AuditEntry & { detail: { status: number } & AuditEntry['detail'] }

/** Records a refusal, or only counts it if its caller had many. */
export type RecordRefusal = (actor: Actor, refusal: Refusal) => Promise<void>

export type RefusalLog = {
  record: RecordRefusal
  /** Records now what was only counted so far; for a process that stops. */
  flush: () => Promise<void>
}

/** Refusals of one caller per window that get a record each. */
const MAX_SINGLE_RECORDS = 20
const WINDOW_MS = 60_000

type Window = { single: number; counted: Map<string, Counted>; timer: NodeJS.Timeout }
type Counted = { actor: Actor; refusal: Refusal; since: string; count: number }

/**
 * Keeps refused requests from filling the audit log. For each caller in a project, the first 20 refusals in a
 * minute get a record each. The others share one record per action and status, with their count, at the end
 * of that minute or when the process stops. A killed process loses the counts of its last minute.
 */
export function createRefusalLog(database: Database, log: Logger, windowMs = WINDOW_MS): RefusalLog {
  const windows = new Map<string, Window>()
  const writes = new Set<Promise<void>>()

  const close = (caller: string): Promise<void> => {
    const window = windows.get(caller)
    windows.delete(caller)
    clearTimeout(window?.timer)
    const writing = write(window).finally(() => writes.delete(writing))
    writes.add(writing)
    return writing
  }

  const write = async (window: Window | undefined): Promise<void> => {
    try {
      for (const { actor, refusal, since, count } of window?.counted.values() ?? []) {
        const { detail, ...entry } = refusal
        await recordAudit(database, actor, { ...entry, targetId: null, detail: { ...detail, refusals: count, since } })
      }
    } catch (error) {
      log.error({ err: error }, 'cannot record refusals in the audit log')
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
    if (window.single < MAX_SINGLE_RECORDS) {
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
      await Promise.all(writes)
    },
  }
}
