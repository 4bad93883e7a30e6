import * as z from 'zod'
import { type HaproxyPart, serverSchema } from '../protocol/desired.js'

export const leavingSchema = z.strictObject({
  backend: z.string(),
  /** The server before it left. */
  server: serverSchema,
  /** Whether to delete it once it is free; otherwise it stays, disabled. */
  removed: z.boolean(),
  /** Whether the current worker has it; otherwise only old workers do. */
  held: z.boolean(),
  /** When it left, in milliseconds of the machine's monotonic clock. */
  since: z.number(),
  /** How long it may finish its connections. */
  delayMs: z.number(),
})

/** A server that is out of service and may finish its connections. */
export type Leaving = z.output<typeof leavingSchema>

export const serverPath = ({ backend, server }: Pick<Leaving, 'backend' | 'server'>): string =>
  `${backend}/${server.name}`

/**
 * Milliseconds since the machine started, the same for all its processes: a server may take longer to leave than an
 * agent lives.
 */
export const monotonicMs = (): number => Number(process.hrtime.bigint() / 1_000_000n)

/** Commands to the current worker about a leaving server. */
export const commandsFor = (one: Pick<Leaving, 'backend' | 'server'>) => ({
  takeOut: `set server ${serverPath(one)} state maint`,
  bringBack: `set server ${serverPath(one)} state ready`,
  closeSessions: `shutdown sessions server ${serverPath(one)}`,
  remove: `del server ${serverPath(one)}`,
})

/** Whether its remaining connections may be closed. */
export const isExpired = ({ since, delayMs }: Leaving, now: number): boolean => now >= since + delayMs

/** How long removed servers may still finish their connections, in whole seconds; 0 if these may be closed. */
export function leavingSeconds(leaving: readonly Leaving[], now: number): number {
  const removed = leaving.filter(one => one.removed)
  const left = removed.map(({ since, delayMs }) => Math.min(since + delayMs - now, delayMs))
  return Math.ceil(Math.max(0, ...left) / 1000)
}

/**
 * The servers that leave when HAProxy changes from `applied` to `desired`: those already leaving that do not
 * return, and those removed or disabled now. A pool's new delay also applies to servers already leaving.
 */
export function serversLeaving(
  before: readonly Leaving[],
  applied: HaproxyPart | null,
  desired: HaproxyPart | null,
  now: number,
): Leaving[] {
  const known = new Set(before.map(serverPath))
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
  return [...before, ...candidates.filter(one => !known.has(serverPath(one)))].flatMap(one => {
    const backend = backends.get(one.backend)
    const kept = backend?.servers.find(({ name }) => name === one.server.name)
    if (kept !== undefined && (!kept.disabled || (one.server.disabled && !known.has(serverPath(one))))) return []
    const delayMs = backend === undefined ? one.delayMs : backend.deregistrationDelay * 1000
    return [{ ...one, removed: kept === undefined, delayMs }]
  })
}

/** An observation of all workers, by server paths. */
type Observation = {
  /** Just deleted from the current worker. */
  deleted: ReadonlySet<string>
  /** Connections were just closed, so the next check must confirm that none are left. */
  closed: ReadonlySet<string>
  hasOldWorkers: boolean
}

/** The servers that are still leaving after an observation. */
export function serversStillLeaving(leaving: readonly Leaving[], now: number, observed: Observation): Leaving[] {
  return leaving
    .map(one => ({ ...one, held: one.held && !observed.deleted.has(serverPath(one)) }))
    .filter(one => {
      if (one.removed && one.held) return true
      return isExpired(one, now) ? observed.closed.has(serverPath(one)) : !one.removed || observed.hasOldWorkers
    })
}

/** The leaving servers after a reload: the new worker never had the removed ones. */
export const afterReload = (leaving: readonly Leaving[]): Leaving[] =>
  leaving.map(one => ({ ...one, held: !one.removed }))

/**
 * The servers to take out of service in the current worker before a reload: as an old worker it refuses such
 * commands, but clients may send more requests on the connections it keeps. Excludes backends that would have no
 * server left.
 */
export function serversToDisableBeforeReload(
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
