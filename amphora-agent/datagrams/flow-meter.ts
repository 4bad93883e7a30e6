import type { DatagramListener } from '../protocol/datagrams.js'
import type { Counters } from '../protocol/heartbeat.js'
import { flowsByMark } from './conntrack.js'
import { type Count, readCounters } from './nftables.js'
import { memberOf, type Numbers, serviceKey, serviceOf } from './numbers.js'
import { countersOf } from './plan-ruleset.js'

/** A reading takes two processes, so it is not repeated sooner, and not before it rested so many times its own time. */
const SHORTEST_REST_MS = 1_000
const REST_FACTOR = 20

/** Keys of readings begin with this; those of HAProxy's workers do not. */
export const SERVICE_PREFIX = 'datagrams-'

/** The counters of a listener with its pool. The key changes when they restart at zero. */
export type ServiceReading = { key: string; listener: DatagramListener; counters: Counters }

/** What the kernel counts: packets, bytes and flows. */
export type FlowReading = {
  services: readonly ServiceReading[]
  /** Flows under way by mark. */
  marks: ReadonlyMap<number, number>
  /** Flows under way by member number. */
  members: ReadonlyMap<number, number>
  /** New flows per second since the reading before, by pool id. */
  rates: ReadonlyMap<string, number>
}

export const NO_READING: FlowReading = { services: [], marks: new Map(), members: new Map(), rates: new Map() }
const ZERO: Count = { packets: 0, bytes: 0 }

/** Reads what the kernel counts, and takes at most a twentieth of a processor for it. */
export class FlowMeter {
  #last: FlowReading | null = null
  #begunAt = Number.NEGATIVE_INFINITY
  #restUntil = Number.NEGATIVE_INFINITY
  #reading: Promise<FlowReading> | null = null

  /** Null before the first reading. */
  get last(): FlowReading | null {
    return this.#last
  }

  /** Milliseconds until the next reading would be a new one. */
  get restMs(): number {
    return Math.max(0, this.#restUntil - performance.now())
  }

  /** Nothing is counted any more. */
  clear(): void {
    this.#last = null
    this.#begunAt = Number.NEGATIVE_INFINITY
  }

  /** @returns the last reading again if it is too early for another. @throws Error if the kernel cannot be read */
  read(listeners: readonly DatagramListener[], numbers: Numbers): Promise<FlowReading | null> {
    if (this.#reading !== null) return this.#reading
    if (this.restMs > 0) return Promise.resolve(this.#last)
    const started = performance.now()
    this.#reading = this.#readNow(listeners, numbers, started).finally(() => {
      this.#reading = null
      const now = performance.now()
      this.#restUntil = now + Math.max(SHORTEST_REST_MS, REST_FACTOR * (now - started))
    })
    return this.#reading
  }

  async #readNow(listeners: readonly DatagramListener[], numbers: Numbers, now: number): Promise<FlowReading> {
    const [counts, marks] = await Promise.all([readCounters(), flowsByMark()])
    const services = listeners.flatMap(listener => {
      const number = numbers.services.given[serviceKey(listener)]
      return number === undefined
        ? []
        : [
            {
              listener,
              key: `${SERVICE_PREFIX}${numbers.tables}-${number}`,
              counters: countersOfService(number, counts, marks),
            },
          ]
    })
    const seconds = (now - this.#begunAt) / 1000
    this.#begunAt = now
    this.#last = { services, marks, members: membersOf(marks), rates: this.#rates(services, seconds) }
    return this.#last
  }

  #rates(services: readonly ServiceReading[], seconds: number): Map<string, number> {
    const before = new Map(
      (this.#last ?? NO_READING).services.map(({ key, counters }) => [key, counters.totalConnections]),
    )
    const rates = new Map<string, number>()
    for (const { key, listener, counters } of services) {
      const begun = Math.max(0, counters.totalConnections - (before.get(key) ?? counters.totalConnections))
      if (listener.poolId !== null) rates.set(listener.poolId, (rates.get(listener.poolId) ?? 0) + begun / seconds)
    }
    return rates
  }
}

function countersOfService(
  number: number,
  counts: ReadonlyMap<string, Count>,
  marks: ReadonlyMap<number, number>,
): Counters {
  const names = countersOf(number)
  const active = [...marks].filter(([mark]) => serviceOf(mark) === number)
  return {
    bytesIn: (counts.get(names.received) ?? ZERO).bytes,
    bytesOut: (counts.get(names.sent) ?? ZERO).bytes,
    activeConnections: active.reduce((sum, [, flows]) => sum + flows, 0),
    totalConnections: (counts.get(names.begun) ?? ZERO).packets,
    requestErrors: (counts.get(names.refused) ?? ZERO).packets,
  }
}

function membersOf(marks: ReadonlyMap<number, number>): Map<number, number> {
  const members = new Map<number, number>()
  for (const [mark, flows] of marks) members.set(memberOf(mark), (members.get(memberOf(mark)) ?? 0) + flows)
  return members
}
