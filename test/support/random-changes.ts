import type { Desired } from '../../amphora-agent/protocol/desired.js'
import type { ApplyResult, Transition } from '../../amphora-agent/protocol/messages.js'
import type { HealthMonitorNode, ListenerNode, MemberNode, PoolNode } from '../../controller/load-balancer/tree.js'
import { renderDesired } from '../../controller/provider/amphora/rendering/desired.js'
import { aListener, aMember, aMonitor, aPool, aTree, someFacts, uuid } from '../golden/models.js'
import { createAmphora } from './amphora.js'
import type { Kind, Tally } from './steady-traffic.js'

const VIP = '127.0.0.1'
const MEMBER_PORT = 9000
const URL = `http://${VIP}:8001/`

export type ChangesReport = {
  done: Record<Kind, number>
  /** Requests and connections that were ended although they had time left, each in words. */
  broken: string[]
  /** Those that outlived the delay of a member that had left. */
  cutInOrder: number
  /** By kind of change, until it was confirmed. */
  effects: Map<string, { milliseconds: number; transition: Transition }[]>
}

type Plan = { count: number; seed: number; clients: number; delaySeconds: number; log?: (text: string) => void }

/**
 * So many random changes, one after another, of a rendered load balancer in a real amphora under clients of every kind. One member stays, so that
 * there is always somebody to serve.
 */
export async function runRandomChanges({ count, seed, clients, delaySeconds, log }: Plan): Promise<ChangesReport> {
  const amphora = await createAmphora()
  try {
    const { traffic } = amphora
    await traffic.ask('members', { port: MEMBER_PORT })
    const agent = await amphora.connect()
    const scene = createScene(randomOf(seed), delaySeconds)
    await agent.apply(scene.desired())
    await traffic.ask('startClients', { url: URL, clients, longestMs: delaySeconds * 1500 })
    const effects: ChangesReport['effects'] = new Map()
    for (let done = 0; done < count; done++) {
      const kind = scene.change()
      const began = performance.now()
      const { transition }: ApplyResult = await agent.apply(scene.desired())
      const times = effects.get(kind) ?? []
      times.push({ milliseconds: performance.now() - began, transition })
      effects.set(kind, times)
      if (done % 100 === 99) log?.(`${done + 1} changes`)
    }
    const { done, failures } = await traffic.ask<Tally>('endClients')
    const isInOrder = (failure: Tally['failures'][number]) => {
      const left = failure.member === null ? undefined : scene.left.get(failure.member)
      return left !== undefined && failure.endedAt >= left + delaySeconds * 1000
    }
    const broken = failures.filter(failure => !isInOrder(failure)).map(failure => JSON.stringify(failure))
    agent.end()
    return { done, broken, cutInOrder: failures.length - broken.length, effects }
  } finally {
    await amphora.destroy()
  }
}

type Random = (below: number) => number

/** Mulberry32: the same numbers for the same seed. */
function randomOf(seed: number): Random {
  let state = seed
  return below => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below)
  }
}

/** A load balancer that changes at random, and when which member left. */
function createScene(random: Random, delaySeconds: number) {
  const left = new Map<string, number>()
  let generation = 0
  let lastMember = 0
  let lastListener = 1
  const join = (change: Partial<MemberNode> = {}): MemberNode => {
    lastMember++
    const address = `127.1.${Math.floor(lastMember / 250)}.${(lastMember % 250) + 1}`
    return aMember(lastMember, { address, protocolPort: MEMBER_PORT, ...change })
  }
  let members = [join(), join(), join()]
  let monitor: HealthMonitorNode | null = null
  let pool: Partial<PoolNode> = {}
  let listener: Partial<ListenerNode> = {}
  let others: ListenerNode[] = []

  const pick = <T>(from: readonly T[]): T | undefined => from[random(from.length)]
  const leave = ({ address }: MemberNode) => {
    if (!left.has(address)) left.set(address, Date.now())
  }
  const remove = () => {
    const gone = pick(members.slice(1))
    if (gone) leave(gone)
    members = members.filter(member => member !== gone)
  }
  const add = () => {
    if (members.length < 8) members = [...members, join({ weight: 1 + random(9) })]
  }
  const toggle = () => {
    const chosen = pick(members.slice(1))
    if (chosen?.adminStateUp) leave(chosen)
    else if (chosen) left.delete(chosen.address)
    members = members.map(member => (member === chosen ? { ...member, adminStateUp: !member.adminStateUp } : member))
  }
  const changes: Readonly<Record<string, () => void>> = {
    'member joins': add,
    'member leaves': remove,
    'member disabled or enabled': toggle,
    'weight of a member': () => {
      const chosen = pick(members.slice(1))
      members = members.map(member => (member === chosen ? { ...member, weight: random(10) } : member))
    },
    'batch of members': () => {
      remove()
      toggle()
      add()
      add()
    },
    algorithm: () => {
      pool = { ...pool, lbAlgorithm: pick(['ROUND_ROBIN', 'LEAST_CONNECTIONS', 'SOURCE_IP'] as const) ?? 'ROUND_ROBIN' }
    },
    'session persistence': () => {
      const type = pick(['SOURCE_IP', 'HTTP_COOKIE', null] as const) ?? null
      const rest = { cookieName: null, persistenceTimeout: null, persistenceGranularity: null }
      pool = { ...pool, sessionPersistence: type === null ? null : { type, ...rest } }
    },
    'health monitor': () => {
      monitor = monitor === null || random(2) === 0 ? aMonitor(1, { type: 'TCP', delay: 1 + random(5) }) : null
    },
    'option of the listener': () => {
      listener = { ...listener, insertHeaders: { 'X-Forwarded-For': 'true' }, timeoutMemberData: 50_000 + random(1000) }
    },
    'listener joins or leaves': () => {
      if (others.length > 0 && random(2) === 0) others = others.slice(1)
      else others = [...others, aListener(++lastListener, { defaultPoolId: uuid(3, 1) })].slice(-5)
    },
  }
  const names = Object.keys(changes)

  return {
    left,
    /** @returns what kind of change it was */
    change: (): string => {
      const name = names[random(names.length)] ?? ''
      changes[name]?.()
      return name
    },
    desired: (): Desired => {
      const tree = aTree({
        generation: ++generation,
        vip: { address: VIP, subnetId: uuid(7, 1), networkId: uuid(8, 1), portId: uuid(9, 1), ownsPort: true },
        listeners: [aListener(1, { defaultPoolId: uuid(3, 1), ...listener }), ...others],
        pools: [aPool(1, { members, healthMonitor: monitor, deregistrationDelay: delaySeconds, ...pool })],
      })
      return { ...renderDesired(tree, someFacts({ fence: generation })), interfaces: [] }
    },
  }
}
