import { runRandomChanges } from '../support/random-changes.js'
import { percentile } from './measure.js'

const COUNT = 1_000
const DELAY_SECONDS = 8

/**
 * Random changes of all kinds under clients of all kinds: what broke, and how long changes took. `BENCH_CHANGES` and `BENCH_SEED` choose
 * others. @returns tables, as Markdown @throws Error when anything broke
 */
export async function benchRandomChanges(): Promise<string> {
  const count = Number(process.env.BENCH_CHANGES ?? COUNT)
  const seed = Number(process.env.BENCH_SEED ?? 1)
  const log = (text: string) => process.stderr.write(`${text}\n`)
  const { done, broken, cutInOrder, effects } = await runRandomChanges({
    count,
    seed,
    clients: 6,
    delaySeconds: DELAY_SECONDS,
    log,
  })
  if (broken.length > 0) throw new Error(`${broken.length} broken:\n${broken.slice(0, 20).join('\n')}`)
  const kinds = Object.entries(done).map(([kind, number]) => `${number} ${kind}`)
  const rows = [...effects].map(([kind, times]) => {
    const sorted = times.map(({ milliseconds }) => milliseconds).sort((one, other) => one - other)
    const reloads = times.filter(({ transition }) => transition === 'reload').length
    const figures = [0.5, 0.99].map(share => Math.round(percentile(sorted, share)))
    return `| ${kind} | ${times.length} | ${reloads} | ${figures.join(' | ')} |`
  })
  return [
    `${count} changes (seed ${seed}) of a pool with a \`deregistration_delay\` of ${DELAY_SECONDS} s, one after another, under 6 clients of each kind: ${kinds.join(', ')}. Broken: 0. Closed in order, since they outlived the delay of a member that had left: ${cutInOrder}.`,
    [
      '| change | count | reloads | confirmed by the agent, ms: median | 99 % |',
      '| --- | ---: | ---: | ---: | ---: |',
      ...rows,
    ].join('\n'),
  ].join('\n\n')
}
