/** What one look at the database shows of another host. */
export type Sighting = {
  id: string
  /** Time of its last sign of life, whatever the clock; null if it never gave one. */
  sign: string | null
  /** Time at which another host last heard one of its amphorae; null unless that was so until its last sign of life. */
  heard: string | null
  /** Amphorae on it that may serve: they have a load balancer, and some health manager has heard them. */
  amphorae: number
}

/** Since when, by this process's own clock in milliseconds, something has been as it is. */
type Since<Value> = { value: Value; since: number }

/** What this process has seen of the other hosts. */
export type Watch = {
  /** Time of the last look. */
  at: number
  hosts: ReadonlyMap<string, { sign: Since<string | null>; heard: Since<string | null>; amphorae: number }>
  /** Since when this host's health manager has listened without a break; null if it does not. */
  listening: number | null
}

/** Two looks further apart do not show what happened in between: the database was away, or this process was paused. */
const BLIND_MS = 10_000

/** How long a host must be silent, and its amphorae unheard, before it counts as gone. */
export const GONE_MS = 30_000

/**
 * Adds a look to what was seen before. Times are counted on this process's own clock and start over after every gap, so
 * neither a database that was away nor a clock that was set makes a host look silent. Pure.
 */
export function look(
  before: Watch | null,
  { now, sightings, isListening }: { now: number; sightings: readonly Sighting[]; isListening: boolean },
): Watch {
  const known = before !== null && now - before.at <= BLIND_MS ? before : null
  const since = <Value>(last: Since<Value> | undefined, value: Value): Since<Value> =>
    last !== undefined && last.value === value ? last : { value, since: now }
  return {
    at: now,
    listening: isListening ? (known?.listening ?? now) : null,
    hosts: new Map(
      sightings.map(({ id, sign, heard, amphorae }) => {
        const last = known?.hosts.get(id)
        return [id, { sign: since(last?.sign, sign), heard: since(last?.heard, heard), amphorae }]
      }),
    ),
  }
}

/**
 * `alive`: it gives signs of life. `slow`: it does not, and nothing shows that its amphorae are gone with it. `gone`: it
 * has been silent, and so have its amphorae, which another host heard until then.
 */
export type Verdict = 'alive' | 'slow' | 'gone'

/**
 * Judges another host. Its silence alone shows nothing: it may only have lost the database, or may have been stopped, and
 * its amphorae serve. So they must have fallen silent too, towards a health manager that listened all the time. Amphorae
 * that no other host heard until then are no evidence: there may be no way from them to here. Then only an operator can tell.
 * Pure.
 */
export function judge({ at, hosts, listening }: Watch, id: string): Verdict {
  const host = hosts.get(id)
  if (host === undefined || host.sign.value === null) return 'slow'
  const lasts = (since: number) => at - since >= GONE_MS
  if (!lasts(host.sign.since)) return 'alive'
  if (host.amphorae === 0) return 'gone'
  const isUnheard = host.heard.value !== null && lasts(host.heard.since)
  return isUnheard && listening !== null && lasts(listening) ? 'gone' : 'slow'
}
