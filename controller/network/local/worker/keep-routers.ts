import { isDeepStrictEqual } from 'node:util'
import type { Logger } from '../../../log/log.js'
import type { Fabric } from '../fabric.js'
import { applyRouter, removeOtherRouters, routerState } from '../routers/apply.js'
import type { Router } from '../routers/router.js'

/** What was last done for a router, and what the kernel had afterwards. */
type Applied = { router: Router; state: string | null; lookedAt: number }

/** How often a router that nobody changed is compared with the kernel. */
const LOOK_MS = 15_000

export type RouterKeeper = {
  /**
   * Makes the kernel have these routers and no others. Spares those that are as they were left.
   * @throws AggregateError with the errors of the routers that failed, once all others are done
   */
  keep: (routers: readonly Router[], signal: AbortSignal) => Promise<void>
}

/** @param now milliseconds of a clock that never goes back */
export function createRouterKeeper(fabric: Fabric, log: Logger, now = () => performance.now()): RouterKeeper {
  const applied = new Map<string, Applied>()

  /** Null if nothing is to be done. */
  const reasonFor = async (router: Router): Promise<string | null> => {
    const last = applied.get(router.id)
    if (last === undefined) return 'new'
    if (!isDeepStrictEqual(last.router, router)) return 'changed'
    if (now() - last.lookedAt < LOOK_MS) return null
    if ((await routerState(fabric, router.id)) !== last.state) return 'repaired'
    last.lookedAt = now()
    return null
  }

  const keepOne = async (router: Router): Promise<void> => {
    const reason = await reasonFor(router)
    if (reason === null) return
    applied.delete(router.id)
    const started = now()
    await applyRouter(fabric, router)
    applied.set(router.id, { router, state: await routerState(fabric, router.id), lookedAt: now() })
    log.info({ routerId: router.id, reason, milliseconds: Math.round(now() - started) }, 'router is in effect')
  }

  let swept: { legs: string[]; at: number } | null = null
  const removeOthers = async (routers: readonly Router[]): Promise<void> => {
    const legs = routers.flatMap(({ id, interfaces, gateway }) => [
      id,
      ...[...interfaces, ...(gateway === null ? [] : [gateway])].map(({ portId }) => portId),
    ])
    if (swept !== null && isDeepStrictEqual(swept.legs, legs) && now() - swept.at < LOOK_MS) return
    const removed = await removeOtherRouters(fabric, routers)
    if (removed > 0) log.info({ routers: removed }, 'removed routers that no longer exist')
    const desired = new Set(routers.map(({ id }) => id))
    for (const id of applied.keys()) if (!desired.has(id)) applied.delete(id)
    swept = { legs, at: now() }
  }

  return {
    keep: async (routers, signal) => {
      await removeOthers(routers)
      const errors: unknown[] = []
      for (const router of routers) {
        if (signal.aborted) return
        await keepOne(router).catch((error: unknown) => errors.push(error))
      }
      if (errors.length > 0) throw new AggregateError(errors, `${errors.length} of ${routers.length} routers failed`)
    },
  }
}
