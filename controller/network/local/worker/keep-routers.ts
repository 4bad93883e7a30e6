import { isDeepStrictEqual } from 'node:util'
import type { Logger } from '../../../log/log.js'
import type { Fabric } from '../fabric.js'
import { namespaceExists } from '../namespace.js'
import { applyRouter, removeOtherRouters, routerState } from '../routers/apply.js'
import { legsOf } from '../routers/plan-router.js'
import { type Router, routerNamespace } from '../routers/router.js'

/** What was last done for a router, and what the kernel had afterwards. */
type Applied = { router: Router; state: string | null; lookedAt: number }

/** How often a router that nobody changed is compared with the kernel, unless there are too many. */
const LOOK_MS = 15_000
/** Each takes some processes: with many routers, a look at all of them would never end. */
const LOOKS_PER_CALL = 2
/** After this time, a call leaves the rest to the next one, which knows of newer changes. */
const CALL_MS = 2_000

export type RouterKeeper = {
  /**
   * Makes the kernel have these routers and no others. Spares those that are as they were left.
   * @returns whether all is done; if not, call it again soon
   * @throws AggregateError with the errors of the routers that failed, once the others had their turn
   */
  keep: (routers: readonly Router[], signal: AbortSignal) => Promise<boolean>
}

/** @param now milliseconds of a clock that never goes back */
export function createRouterKeeper(fabric: Fabric, log: Logger, now = () => performance.now()): RouterKeeper {
  const applied = new Map<string, Applied>()
  const triedAt = new Map<string, number>()

  const apply = async (router: Router, reason: string): Promise<void> => {
    const previous = reason === 'changed' ? (applied.get(router.id)?.router ?? null) : null
    applied.delete(router.id)
    const started = now()
    triedAt.set(router.id, started)
    await applyRouter(fabric, router, previous)
    applied.set(router.id, { router, state: await routerState(fabric, router.id), lookedAt: now() })
    log.info({ routerId: router.id, reason, milliseconds: Math.round(now() - started) }, 'router is in effect')
  }

  const look = async (router: Router, last: Applied): Promise<void> => {
    if ((await routerState(fabric, router.id)) !== last.state) return apply(router, 'repaired')
    last.lookedAt = now()
  }

  let swept: { legs: string[]; at: number } | null = null
  const sweep = async (routers: readonly Router[]): Promise<void> => {
    const legs = routers.flatMap(router => [router.id, ...legsOf(router).map(({ port }) => port.portId)])
    if (swept !== null && isDeepStrictEqual(swept.legs, legs) && now() - swept.at < LOOK_MS) return
    const removed = await removeOtherRouters(fabric, routers)
    if (removed > 0) log.info({ routers: removed }, 'removed routers that no longer exist')
    const desired = new Set(routers.map(({ id }) => id))
    for (const known of [applied, triedAt]) for (const id of known.keys()) if (!desired.has(id)) known.delete(id)
    // Whatever lost its namespace or a leg need not wait for its look.
    const attached = new Set(await fabric.attachedLegs())
    for (const router of routers) {
      const isThere = namespaceExists(routerNamespace(fabric.instance, router.id))
      if (!isThere || legsOf(router).some(({ port }) => !attached.has(port.portId))) applied.delete(router.id)
    }
    swept = { legs, at: now() }
  }

  /** What there is to do, the most urgent first. */
  const workFor = (routers: readonly Router[]): (() => Promise<void>)[] => {
    const lastTry = ({ id }: Router) => triedAt.get(id) ?? 0
    const isChanged = (router: Router) => !isDeepStrictEqual(applied.get(router.id)?.router, router)
    // Of those that were never tried (all of them, after a start), somebody may be waiting for the newest.
    const byTurn = routers
      .filter(isChanged)
      .reverse()
      .sort((a, b) => lastTry(a) - lastTry(b))
    const changed = byTurn.filter(({ id }) => applied.has(id))
    const others = byTurn.filter(({ id }) => !applied.has(id))
    const looks = routers
      .flatMap(router => {
        const last = applied.get(router.id)
        return last === undefined || isChanged(router) || now() - last.lookedAt < LOOK_MS ? [] : [{ router, last }]
      })
      .sort((a, b) => a.last.lookedAt - b.last.lookedAt)
      .slice(0, LOOKS_PER_CALL)
    return [
      ...inTurn(
        changed.map(router => () => apply(router, 'changed')),
        others.map(router => () => apply(router, 'new')),
      ),
      ...looks.map(
        ({ router, last }) =>
          () =>
            look(router, last),
      ),
    ]
  }

  return {
    keep: async (routers, signal) => {
      await sweep(routers)
      const started = now()
      const errors: unknown[] = []
      const work = workFor(routers)
      let done = 0
      for (; done < work.length && !signal.aborted && now() - started < CALL_MS; done++) {
        await work[done]?.().catch((error: unknown) => errors.push(error))
      }
      if (errors.length > 0) throw new AggregateError(errors, `${errors.length} of ${routers.length} routers failed`)
      return done === work.length
    },
  }
}

/** The elements of both, alternately: neither list holds up the other. */
function inTurn<T>(one: readonly T[], other: readonly T[]): T[] {
  const length = Math.max(one.length, other.length)
  return Array.from({ length }, (_, at) => [...one.slice(at, at + 1), ...other.slice(at, at + 1)]).flat()
}
