import type { BenchInstance } from './instance.js'

export type Figures = {
  requestsPerSecond: number
  p50: number
  p99: number
  /** CPU milliseconds of the API process per request. */
  processor: number
  /** CPU milliseconds of PostgreSQL's processes per request, including the worker's statements. */
  database: number
}

/**
 * Sends `count` requests from `clients` at once, each sending its next request after its last answer, after
 * half as many that only warm up the compiler.
 * @param request the n-th request
 * @throws Error when one fails
 */
export async function measure(
  instance: BenchInstance,
  { clients, count, request }: { clients: number; count: number; request: (n: number) => Promise<unknown> },
): Promise<Figures> {
  await send({ clients, count: Math.ceil(count / 2), request })
  const [cpuBefore, databaseBefore] = [instance.apiCpu(), instance.databaseCpu()]
  const started = performance.now()
  const latencies = await send({ clients, count, request })
  const seconds = (performance.now() - started) / 1000
  const [cpu, database] = [instance.apiCpu() - cpuBefore, instance.databaseCpu() - databaseBefore]
  latencies.sort((a, b) => a - b)
  return {
    requestsPerSecond: count / seconds,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    processor: (cpu * 1000) / count,
    database: (database * 1000) / count,
  }
}

async function send(load: { clients: number; count: number; request: (n: number) => Promise<unknown> }) {
  const { clients, count, request } = load
  const latencies: number[] = []
  let next = 0
  const client = async () => {
    for (let n = next++; n < count; n = next++) {
      const asked = performance.now()
      await request(n)
      latencies.push(performance.now() - asked)
    }
  }
  await Promise.all(Array.from({ length: clients }, client))
  return latencies
}

export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
}
