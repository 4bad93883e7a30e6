import type { Counters } from '../protocol/heartbeat.js'

/**
 * Counters that never decrease, although every reload starts a new worker at zero: the totals of exited workers are
 * kept, and the counters of running ones added. Objects are keyed by frontend or backend name, workers by process
 * identity.
 */
export type CounterState = {
  /** 8 random bytes in hexadecimal; a new value means that the counters restarted at zero. */
  epoch: string
  ended: Record<string, Counters>
  workers: Record<string, Record<string, Counters>>
}

/** The counters of a frontend or backend, or of a UDP or SCTP listener or its pool. */
export type CountedRow = { name: string; counters: Counters }

/** Objects are kept while they may come back. This limit is far beyond any load balancer. */
const MAX_OBJECTS = 20_000

const ZERO: Counters = { bytesIn: 0, bytesOut: 0, activeConnections: 0, totalConnections: 0, requestErrors: 0 }

/**
 * Adds one reading of all workers.
 * @param living keys of all workers that exist, including those that could not be read this time
 */
export function observe(
  state: CounterState,
  readings: ReadonlyMap<string, readonly CountedRow[]>,
  living: ReadonlySet<string>,
): CounterState {
  const ended = { ...state.ended }
  const workers: CounterState['workers'] = {}
  for (const [worker, counted] of Object.entries(state.workers)) {
    if (living.has(worker)) workers[worker] = counted
    else for (const [name, counters] of Object.entries(counted)) ended[name] = finished(ended[name], counters)
  }
  for (const [worker, rows] of readings) {
    const former = workers[worker] ?? {}
    for (const { name, counters } of rows) {
      const before = former[name]
      // HAProxy's counters were cleared (`clear counters`).
      if (before && isLower(counters, before)) ended[name] = finished(ended[name], before)
    }
    workers[worker] = Object.fromEntries(rows.map(({ name, counters }) => [name, counters]))
  }
  const surplus = Object.keys(ended).slice(0, Math.max(0, Object.keys(ended).length - MAX_OBJECTS))
  for (const name of surplus) delete ended[name]
  return { epoch: state.epoch, ended, workers }
}

export function totalOf(state: CounterState, name: string): Counters {
  return Object.values(state.workers).reduce<Counters>(
    (total, counted) => sum(total, counted[name] ?? ZERO),
    state.ended[name] ?? ZERO,
  )
}

function finished(ended: Counters | undefined, last: Counters): Counters {
  return { ...sum(ended ?? ZERO, last), activeConnections: 0 }
}

function sum(one: Counters, other: Counters): Counters {
  return {
    bytesIn: one.bytesIn + other.bytesIn,
    bytesOut: one.bytesOut + other.bytesOut,
    activeConnections: one.activeConnections + other.activeConnections,
    totalConnections: one.totalConnections + other.totalConnections,
    requestErrors: one.requestErrors + other.requestErrors,
  }
}

function isLower(now: Counters, before: Counters): boolean {
  return (
    now.bytesIn < before.bytesIn ||
    now.bytesOut < before.bytesOut ||
    now.totalConnections < before.totalConnections ||
    now.requestErrors < before.requestErrors
  )
}
