import { setTimeout as delay } from 'node:timers/promises'
import type { BenchInstance } from './instance.js'

export type Figures = {
  requestsPerSecond: number
  p50: number
  p99: number
  /** Milliseconds of the API process per request. */
  processor: number
  transactions: number
}

/** PostgreSQL publishes its counters about once a second. */
const COUNTERS_MS = 1_500

/**
 * Sends `count` requests from `clients` at once, each its next one after the last was answered. @throws Error when one fails
 * @param request the n-th request
 */
export async function measure(
  instance: BenchInstance,
  { clients, count, request }: { clients: number; count: number; request: (n: number) => Promise<unknown> },
): Promise<Figures> {
  await delay(COUNTERS_MS)
  const before = { cpu: instance.apiCpu(), transactions: await instance.statements() }
  const latencies: number[] = []
  let next = 0
  const started = performance.now()
  const client = async () => {
    for (let n = next++; n < count; n = next++) {
      const asked = performance.now()
      await request(n)
      latencies.push(performance.now() - asked)
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  const seconds = (performance.now() - started) / 1000
  const cpu = instance.apiCpu() - before.cpu
  await delay(COUNTERS_MS)
  const transactions = (await instance.statements()) - before.transactions
  latencies.sort((a, b) => a - b)
  return {
    requestsPerSecond: count / seconds,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    processor: (cpu * 1000) / count,
    transactions: transactions / count,
  }
}

export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
}
