import type { Body, Change, Kinds, Listener, Model } from './model.js'

const MAX_EXTRA_LISTENERS = 5

export function listenerChanges({
  random,
  loadBalancerId,
  pools,
  listeners,
  pick,
  createListener,
  nextListenerPort,
}: Model): Kinds {
  const putListener = (fits: (listener: Listener) => boolean, body: (listener: Listener) => Body): Change | null => {
    const listener = pick(listeners.filter(fits))
    return listener && { method: 'PUT', path: `/listeners/${listener.id}`, body: { listener: body(listener) } }
  }

  return {
    'default pool of a listener': () => {
      const listener = pick(listeners)
      const pool = pick(pools.filter(({ protocol, isExtra }) => protocol === listener?.protocol && !isExtra))
      if (listener === null || pool === null) return null
      listener.poolId = pool.id
      return { method: 'PUT', path: `/listeners/${listener.id}`, body: { listener: { default_pool_id: pool.id } } }
    },
    'listener created': () => {
      const pool = pick(pools)
      if (pool === null || listeners.filter(({ isExtra }) => isExtra).length >= MAX_EXTRA_LISTENERS) return null
      return createListener(pool, nextListenerPort(), true)
    },
    'listener disabled or enabled': () =>
      putListener(
        ({ isExtra }) => isExtra,
        listener => {
          listener.isEnabled = !listener.isEnabled
          return { admin_state_up: listener.isEnabled }
        },
      ),
    'listener deleted': () => {
      const listener = pick(listeners.filter(({ isExtra }) => isExtra))
      if (listener === null) return null
      const after = () => listeners.splice(listeners.indexOf(listener), 1)
      return { method: 'DELETE', path: `/listeners/${listener.id}`, after }
    },
    'connection limit': () =>
      putListener(
        () => true,
        () => ({ connection_limit: random(3) === 0 ? -1 : 200 + random(300) }),
      ),
    'timeouts of a listener': () =>
      putListener(
        () => true,
        () => ({
          timeout_client_data: 40_000 + random(10_000),
          timeout_member_connect: 4_000 + random(1_000),
          timeout_member_data: 40_000 + random(10_000),
        }),
      ),
    'inserted headers': () =>
      putListener(
        ({ protocol }) => protocol === 'HTTP',
        () => ({
          insert_headers: { 'X-Forwarded-For': `${random(2) === 0}`, 'X-Forwarded-Port': `${random(2) === 0}` },
        }),
      ),
    'allowed sources': () =>
      putListener(
        () => true,
        () => ({ allowed_cidrs: random(2) === 0 ? null : ['0.0.0.0/1', '128.0.0.0/1'] }),
      ),
    'load balancer renamed': () => ({
      method: 'PUT',
      path: `/loadbalancers/${loadBalancerId}`,
      body: { loadbalancer: { name: `changing-${random(1000)}` } },
    }),
  }
}
