import { z } from 'zod'
import { type HaproxyPart, serverSchema } from '../protocol/desired.js'

export const leavingSchema = z.strictObject({
  backend: z.string(),
  /** The server as it was before it left. */
  server: serverSchema,
  /** To be deleted once it is free; else it stays, disabled. */
  removed: z.boolean(),
  /** The present worker has it; else only workers of former configurations do. */
  held: z.boolean(),
  /** When it left: milliseconds of the machine's monotonic clock. */
  since: z.number(),
  /** How long it may finish what is under way. */
  delayMs: z.number(),
})

/** A server that is out of service and may finish what is under way. */
export type Leaving = z.output<typeof leavingSchema>

export const pathOf = ({ backend, server }: Pick<Leaving, 'backend' | 'server'>): string => `${backend}/${server.name}`

/** Milliseconds since the machine started, the same for every process on it: a server may leave for longer than an agent lives. */
export const monotonicMs = (): number => Number(process.hrtime.bigint() / 1_000_000n)

/** What the present worker is told of one that leaves. */
export const commandsFor = (one: Pick<Leaving, 'backend' | 'server'>) => ({
  takeOut: `set server ${pathOf(one)} state maint`,
  bringBack: `set server ${pathOf(one)} state ready`,
  closeSessions: `shutdown sessions server ${pathOf(one)}`,
  remove: `del server ${pathOf(one)}`,
})

/** Whether what is left may be closed. */
export const isOver = ({ since, delayMs }: Leaving, now: number): boolean => now >= since + delayMs

/** How long removed servers may still finish what is under way, in whole seconds; 0 when it may be closed. */
export function leavingSeconds(leaving: readonly Leaving[], now: number): number {
  const removed = leaving.filter(one => one.removed)
  const left = removed.map(({ since, delayMs }) => Math.min(since + delayMs - now, delayMs))
  return Math.ceil(Math.max(0, ...left) / 1000)
}

/**
 * Who leaves when HAProxy goes from `applied` to `desired`: those that left before and do not return, and those that are removed or disabled
 * now. A pool's new delay counts for those that are leaving already.
 */
export function whoLeaves(
  before: readonly Leaving[],
  applied: HaproxyPart | null,
  desired: HaproxyPart | null,
  now: number,
): Leaving[] {
  const known = new Set(before.map(pathOf))
  const candidates = (applied?.backends ?? []).flatMap(({ name, deregistrationDelay, servers }) =>
    servers.map(server => ({
      backend: name,
      server,
      removed: false,
      held: true,
      since: now,
      delayMs: deregistrationDelay * 1000,
    })),
  )
  const backends = new Map((desired?.backends ?? []).map(backend => [backend.name, backend]))
  return [...before, ...candidates.filter(one => !known.has(pathOf(one)))].flatMap(one => {
    const backend = backends.get(one.backend)
    const kept = backend?.servers.find(({ name }) => name === one.server.name)
    if (kept !== undefined && (!kept.disabled || (one.server.disabled && !known.has(pathOf(one))))) return []
    const delayMs = backend === undefined ? one.delayMs : backend.deregistrationDelay * 1000
    return [{ ...one, removed: kept === undefined, delayMs }]
  })
}

/** What was observed at all workers, by paths of servers. */
type Observation = {
  /** The present worker has just deleted them. */
  deleted: ReadonlySet<string>
  /** They had connections that were closed, so it must be seen that there are none left. */
  closed: ReadonlySet<string>
  hasOldWorkers: boolean
}

/** Who still leaves after an observation. */
export function whoStillLeaves(leaving: readonly Leaving[], now: number, observed: Observation): Leaving[] {
  return leaving
    .map(one => ({ ...one, held: one.held && !observed.deleted.has(pathOf(one)) }))
    .filter(one => {
      if (one.removed && one.held) return true
      return isOver(one, now) ? observed.closed.has(pathOf(one)) : !one.removed || observed.hasOldWorkers
    })
}

/** Who leaves, when a new worker has taken over, which never had those that were removed. */
export const afterReload = (leaving: readonly Leaving[]): Leaving[] =>
  leaving.map(one => ({ ...one, held: !one.removed }))

/**
 * Whom a reload takes out of service in the present worker before it becomes an old one, which takes no such commands any more: clients whose
 * connections it keeps may ask it once more. Not where nobody else of the backend would answer.
 */
export function whoLeavesBeforeReload(
  applied: HaproxyPart | null,
  desired: HaproxyPart | null,
): Pick<Leaving, 'backend' | 'server'>[] {
  const backends = new Map((desired?.backends ?? []).map(backend => [backend.name, backend]))
  return (applied?.backends ?? []).flatMap(({ name, servers }) => {
    const enabled = new Set(backends.get(name)?.servers.flatMap(server => (server.disabled ? [] : [server.name])))
    const serving = servers.filter(server => !server.disabled)
    if (!serving.some(server => enabled.has(server.name))) return []
    return serving.filter(server => !enabled.has(server.name)).map(server => ({ backend: name, server }))
  })
}
