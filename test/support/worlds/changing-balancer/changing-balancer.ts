import { l7Changes } from './l7.js'
import { listenerChanges } from './listeners.js'
import { memberChanges } from './members.js'
import { type Change, createModel, type Plan, type Pool, type Protocol } from './model.js'
import { poolChanges } from './pools.js'

const ASKED: ReadonlyMap<Protocol, number> = new Map([
  ['HTTP', 80],
  ['TCP', 81],
])

/**
 * A load balancer that changes at random. Clients use its listeners on ports 80 (HTTP) and 81 (TCP). Each of
 * their pools keeps one member, so that one always serves. Changes that end requests by definition (a listener
 * that is deleted or disabled, an L7 policy that rejects) affect only listeners without clients, or rules that
 * no client's request matches. When a pool no longer serves such a listener, its members have left it.
 * @param carryOut makes one change and waits until it is in effect
 */
export async function createChangingBalancer(plan: Plan, carryOut: (change: Change) => Promise<unknown>) {
  const model = createModel(plan)
  const { pools, createPool, createListener, servingPools, leaves, isBack, isInOrder } = model
  for (const [protocol, port] of ASKED) {
    await carryOut(createPool(protocol, false))
    const pool = pools.at(-1)
    if (pool) await carryOut(createListener(pool, port, false))
    await carryOut(createPool(protocol, false))
  }
  const kinds = { ...memberChanges(model), ...poolChanges(model), ...listenerChanges(model), ...l7Changes(model) }
  const names = Object.keys(kinds)
  /** What a change means for the members of pools that now serve, or no longer do. */
  const following = (change: Change, before: readonly Pool[], from: number): Change => ({
    ...change,
    after: async answer => {
      await change.after?.(answer)
      const now = servingPools()
      for (const pool of before)
        if (!now.includes(pool)) for (const one of pool.members) leaves(pool, one, 'pool', from)
      for (const pool of now) if (!before.includes(pool)) for (const one of pool.members) isBack(one, 'pool')
    },
  })
  return {
    isInOrder,
    /** @returns a change that is possible now, and its kind */
    next: (): { kind: string; change: Change } => {
      for (;;) {
        const kind = names[plan.random(names.length)] ?? ''
        const before = servingPools()
        const change = kinds[kind]?.() ?? null
        if (change !== null) return { kind, change: following(change, before, Date.now()) }
      }
    },
  }
}
