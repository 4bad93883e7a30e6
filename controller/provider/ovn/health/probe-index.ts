import type { Southbound } from '../../../ovn/southbound/southbound.js'
import type { RowChange } from '../../../ovsdb/copy.js'
import type { ProbeStatus } from './reported.js'

type Monitor = ReturnType<Southbound['serviceMonitors']> extends ReadonlyMap<string, infer R> ? R : never

/** OVN's probes by where they go. Follows the copy's changes: a look at one member is no look at all others. */
export class ProbeIndex {
  readonly #places = new Map<string, Map<string, Monitor>>()

  constructor(monitors: ReadonlyMap<string, Monitor>) {
    for (const [uuid, monitor] of monitors) this.#add(uuid, monitor)
  }

  /** @returns the places of the probes that changed, before and after */
  follow(changes: readonly RowChange[]): Set<string> {
    const places = new Set<string>()
    for (const { table, uuid, before, after } of changes) {
      if (table !== 'Service_Monitor') continue
      if (before !== null) places.add(this.#remove(uuid, before as Monitor))
      if (after !== null) places.add(this.#add(uuid, after as Monitor))
    }
    return places
  }

  /**
   * @param portId the logical port that is probed: networks of different projects may have the same addresses
   * @returns undefined if there is no such probe
   */
  statusAt(place: string, protocol: 'tcp' | 'udp', portId: string): ProbeStatus {
    for (const monitor of this.#places.get(place)?.values() ?? [])
      if (monitor.logical_port === portId && (monitor.protocol ?? 'tcp') === protocol)
        return monitor.status as ProbeStatus
    return undefined
  }

  #add(uuid: string, monitor: Monitor): string {
    const place = placeOf(monitor.ip, monitor.port)
    const there = this.#places.get(place) ?? new Map<string, Monitor>()
    this.#places.set(place, there.set(uuid, monitor))
    return place
  }

  #remove(uuid: string, { ip, port }: Monitor): string {
    const place = placeOf(ip, port)
    const there = this.#places.get(place)
    there?.delete(uuid)
    if (there?.size === 0) this.#places.delete(place)
    return place
  }
}

/** Of a member, as the tables have it. */
export const placeOf = (ip: string, port: number): string => `${ip} ${port}`
