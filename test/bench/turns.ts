import { percentile } from './measure.js'
import type { Answers } from './wrk.js'

/** Comparisons of HAProxies that take turns, so that other work on the machine affects them equally. */

export const ROUNDS = Number(process.env.BENCH_REPETITIONS ?? 8)
export const SECONDS = 2

/** @property cpu processor seconds so far */
export type Contestant = { name: string; cpu: () => number; stop: () => Promise<void> }

type Measured = Answers & { processor: number }

export const tableOf = (about: string, rows: readonly string[]): string =>
  [
    about,
    '',
    '| requests | configuration | per second | p50, ms | p99, ms | processor, µs | requests, ratio to hand-tuned | processor, ratio | broken |',
    '| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |',
    ...rows,
  ].join('\n')

/** @returns the results of each contestant's turns; the first turns only warm up */
export async function takeTurns<Each extends Contestant>(
  contestants: readonly Each[],
  measure: (contestant: Each) => Promise<Answers>,
): Promise<Measured[][]> {
  const measured: Measured[][] = contestants.map(() => [])
  for (let round = -1; round < ROUNDS; round++) {
    const order = [...contestants.keys()]
    for (const at of round % 2 === 0 ? order : order.reverse()) {
      const contestant = contestants[at]!
      const before = contestant.cpu()
      const answers = await measure(contestant)
      const processor = ((contestant.cpu() - before) / answers.requests) * 1_000_000
      if (round >= 0) measured[at]!.push({ ...answers, processor })
    }
  }
  return measured
}

/** Compares all with the first one. */
export function rowsOf(kind: string, contestants: readonly Contestant[], measured: readonly Measured[][]): string[] {
  const [reference = []] = measured
  return contestants.map(({ name }, at) => {
    const turns = measured[at] ?? []
    const middle = (key: keyof Measured) => median(turns.map(turn => turn[key]))
    const ratio = (key: keyof Measured) =>
      spread(turns.map((turn, round) => turn[key] / (reference[round]?.[key] ?? 0)))
    const cells = [
      middle('requestsPerSecond').toFixed(0),
      middle('p50').toFixed(2),
      middle('p99').toFixed(2),
      middle('processor').toFixed(1),
      at === 0 ? '' : ratio('requestsPerSecond'),
      at === 0 ? '' : ratio('processor'),
      turns.reduce((sum, { broken }) => sum + broken, 0),
    ]
    return `| ${kind} | ${name} | ${cells.join(' | ')} |`
  })
}

export const median = (values: readonly number[]): number =>
  percentile(
    values.toSorted((a, b) => a - b),
    0.5,
  )

/** The median, with the least and the greatest. */
export const spread = (values: readonly number[]): string =>
  `${median(values).toFixed(2)} (${Math.min(...values).toFixed(2)}–${Math.max(...values).toFixed(2)})`
