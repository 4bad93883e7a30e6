import type { Random } from '../../inputs/random.js'

export type Body = Readonly<Record<string, unknown>>
export type Answer = Readonly<Record<string, { id: string }>> | undefined
/** A request of the load-balancing API, and what is true once it is in effect. */
export type Change = {
  method: 'POST' | 'PUT' | 'DELETE'
  path: string
  body?: Body
  after?: (answer: Answer) => unknown
}

export type Protocol = 'HTTP' | 'TCP'
export type Place = { subnetId: string; address: string }
export type Member = { id: string; place: Place; port: number; weight: number; stays: boolean; isEnabled: boolean }
export type Pool = {
  id: string
  protocol: Protocol
  delay: number
  monitorId: string | null
  members: Member[]
  isExtra: boolean
}
/**
 * A policy that no client request matches may do anything; a policy that they match sends them to a pool that
 * serves.
 */
export type Policy = { id: string; isMatched: boolean; isEnabled: boolean; poolId: string | null; ruleIds: string[] }
export type Listener = {
  id: string
  protocol: Protocol
  poolId: string
  isEnabled: boolean
  isExtra: boolean
  policies: Policy[]
}
/**
 * Since when a member, or its pool with all members, finishes its open requests, and until when. After `delay`
 * seconds the rest is closed.
 */
export type Departure = { of: 'member' | 'pool'; pool: Pool; from: number; delay: number; until: number }
/** Changes by kind: the next change of that kind, or null when none is possible. */
export type Kinds = Readonly<Record<string, () => Change | null>>

const DELAYS = [6, 7, 8, 9, 10]
/** When the client learns of it. */
const NOTICE_MS = 1_000

export type Plan = {
  random: Random
  loadBalancerId: string
  /** Where members are: each port from `firstPort` on is one. */
  places: readonly Place[]
  firstPort: number
  call: (method: string, path: string, body?: Body) => Promise<unknown>
}

export type Model = ReturnType<typeof createModel>

/**
 * A model of a load balancer, as far as changes need it, and what creates its objects. It never reads from the
 * API, which it judges.
 */
export function createModel({ random, loadBalancerId, places, firstPort, call }: Plan) {
  let lastPort = firstPort - 1
  let lastListenerPort = 1000
  const pools: Pool[] = []
  const listeners: Listener[] = []
  const departures = new Map<string, Departure[]>()

  const pick = <T>(from: readonly T[]): T | null => from[random(from.length)] ?? null
  const aDelay = () => pick(DELAYS) ?? 8
  const nameOf = ({ place, port }: Member) => `${place.address}:${port}`
  const newMember = (stays = false): Member => {
    const place = pick(places)
    if (place === null) throw new Error('There is no place for a member.')
    return { id: '', place, port: ++lastPort, weight: 1 + random(9), stays, isEnabled: true }
  }
  const bodyOf = ({ place, port, weight, isEnabled }: Member) => ({
    address: place.address,
    protocol_port: port,
    subnet_id: place.subnetId,
    weight,
    admin_state_up: isEnabled,
  })
  const leaves = (pool: Pool, member: Member, of: Departure['of'] = 'member', from = Date.now()) => {
    if (!member.isEnabled) return
    const departure = { of, pool, from, delay: pool.delay, until: Number.POSITIVE_INFINITY }
    departures.set(nameOf(member), [...(departures.get(nameOf(member)) ?? []), departure])
  }
  const isBack = (member: Member, of: Departure['of'] = 'member') => {
    for (const departure of departures.get(nameOf(member)) ?? []) {
      if (departure.of === of) departure.until = Math.min(departure.until, Date.now())
    }
  }
  /** Pools to which the clients' listeners send requests. */
  const servingPools = (): Pool[] => {
    const ids = listeners
      .filter(({ isExtra }) => !isExtra)
      .flatMap(({ poolId, policies }) => [
        poolId,
        ...policies.filter(({ isEnabled, ruleIds }) => isEnabled && ruleIds.length > 0).map(policy => policy.poolId),
      ])
    return pools.filter(({ id }) => ids.includes(id))
  }

  const createPool = (protocol: Protocol, isExtra: boolean): Change => {
    const pool: Pool = {
      id: '',
      protocol,
      delay: aDelay(),
      monitorId: null,
      members: [newMember(true)],
      isExtra,
    }
    const body = {
      loadbalancer_id: loadBalancerId,
      protocol,
      lb_algorithm: 'ROUND_ROBIN',
      deregistration_delay: pool.delay,
    }
    return {
      method: 'POST',
      path: '/pools',
      body: { pool: { ...body, members: pool.members.map(bodyOf) } },
      after: answer => pools.push({ ...pool, id: answer?.pool?.id ?? '' }),
    }
  }
  const createListener = (pool: Pool, port: number, isExtra: boolean): Change => {
    const { protocol, id: poolId } = pool
    const body = { loadbalancer_id: loadBalancerId, protocol, protocol_port: port, default_pool_id: poolId }
    return {
      method: 'POST',
      path: '/listeners',
      body: { listener: body },
      after: answer =>
        listeners.push({ id: answer?.listener?.id ?? '', protocol, poolId, isEnabled: true, isExtra, policies: [] }),
    }
  }

  return {
    random,
    loadBalancerId,
    call,
    pools,
    listeners,
    pick,
    nameOf,
    newMember,
    bodyOf,
    leaves,
    isBack,
    servingPools,
    createPool,
    createListener,
    aDelay,
    nextListenerPort: () => ++lastListenerPort,
    /** A pool's new delay also counts for members that have already left. */
    shorten: (pool: Pool, delay: number) => {
      for (const departure of [...departures.values()].flat()) {
        if (departure.pool === pool) departure.delay = Math.min(departure.delay, delay)
      }
    },
    /** Whether a failure is due: its member had left and the delay was over. */
    isInOrder: (member: string | null, endedAt: number): boolean =>
      (departures.get(member ?? '') ?? []).some(
        ({ from, delay, until }) => endedAt >= from + delay * 1_000 && endedAt <= until + NOTICE_MS,
      ),
  }
}
