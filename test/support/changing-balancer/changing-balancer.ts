import { l7Changes } from './l7.js'
import { listenerChanges } from './listeners.js'
import { memberChanges } from './members.js'
import { type Change, createModel, type Plan, type Protocol } from './model.js'
import { poolChanges } from './pools.js'

const ASKED: ReadonlyMap<Protocol, number> = new Map([
  ['HTTP', 80],
  ['TCP', 81],
])

/**
 * A load balancer that changes at random. Clients ask its listeners of ports 80 (HTTP) and 81 (TCP); each of their pools has a member that stays, so
 * that there is always somebody to serve. What by its meaning ends requests (a listener that is deleted or disabled, an L7 policy that refuses) is done
 * to listeners that no client asks, or by rules that no client's request matches.
 * @param carryOut does one change and waits until it is in effect
 */
export async function createChangingBalancer(plan: Plan, carryOut: (change: Change) => Promise<unknown>) {
  const model = createModel(plan)
  const { pools, createPool, createListener, isInOrder } = model
  for (const [protocol, port] of ASKED) {
    await carryOut(createPool(protocol, false))
    const pool = pools.at(-1)
    if (pool) await carryOut(createListener(pool, port, false))
    await carryOut(createPool(protocol, false))
  }
  const kinds = { ...memberChanges(model), ...poolChanges(model), ...listenerChanges(model), ...l7Changes(model) }
  const names = Object.keys(kinds)
  return {
    isInOrder,
    /** @returns a change that can be made now, and its kind */
    next: (): { kind: string; change: Change } => {
      for (;;) {
        const kind = names[plan.random(names.length)] ?? ''
        const change = kinds[kind]?.() ?? null
        if (change !== null) return { kind, change }
      }
    },
  }
}
