import type { Answer, Body, Change, Kinds, Model, Pool } from './model.js'

const MAX_EXTRA_POOLS = 4

export function poolChanges({ random, pools, listeners, pick, aDelay, createPool, shorten }: Model): Kinds {
  const putPool = (fits: (pool: Pool) => boolean, body: (pool: Pool) => Body): Change | null => {
    const pool = pick(pools.filter(fits))
    if (pool === null) return null
    return { method: 'PUT', path: `/pools/${pool.id}`, body: { pool: body(pool) } }
  }
  const monitorOf = () => ({ delay: 3 + random(3), timeout: 3, max_retries: 1 + random(3) })

  return {
    'algorithm of a pool': () =>
      putPool(
        () => true,
        () => ({ lb_algorithm: pick(['ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP']) }),
      ),
    'session persistence': () =>
      putPool(
        () => true,
        ({ protocol }) => {
          const type = pick(
            protocol === 'HTTP' ? ['SOURCE_IP', 'HTTP_COOKIE', 'APP_COOKIE', null] : ['SOURCE_IP', null],
          )
          const cookie = type === 'APP_COOKIE' ? { cookie_name: 'session' } : {}
          return { session_persistence: type === null ? null : { type, ...cookie } }
        },
      ),
    'deregistration delay': () =>
      putPool(
        () => true,
        pool => {
          pool.delay = aDelay()
          shorten(pool, pool.delay)
          return { deregistration_delay: pool.delay }
        },
      ),
    'pool created': () =>
      pools.filter(({ isExtra }) => isExtra).length < MAX_EXTRA_POOLS
        ? createPool(random(2) === 0 ? 'HTTP' : 'TCP', true)
        : null,
    'pool deleted': () => {
      const pool = pick(pools.filter(({ id, isExtra }) => isExtra && !listeners.some(({ poolId }) => poolId === id)))
      if (pool === null) return null
      return { method: 'DELETE', path: `/pools/${pool.id}`, after: () => pools.splice(pools.indexOf(pool), 1) }
    },
    'health monitor created': () => {
      const pool = pick(pools.filter(({ monitorId }) => monitorId === null))
      if (pool === null) return null
      const healthmonitor = { pool_id: pool.id, type: pick(['HTTP', 'TCP', 'PING']), ...monitorOf() }
      const after = (answer: Answer) => {
        pool.monitorId = answer?.healthmonitor?.id ?? null
      }
      return { method: 'POST', path: '/healthmonitors', body: { healthmonitor }, after }
    },
    'health monitor changed': () => {
      const pool = pick(pools.filter(({ monitorId }) => monitorId !== null))
      if (pool === null) return null
      return { method: 'PUT', path: `/healthmonitors/${pool.monitorId}`, body: { healthmonitor: monitorOf() } }
    },
    'health monitor deleted': () => {
      const pool = pick(pools.filter(({ monitorId }) => monitorId !== null))
      if (pool === null) return null
      const path = `/healthmonitors/${pool.monitorId}`
      pool.monitorId = null
      return { method: 'DELETE', path }
    },
  }
}
