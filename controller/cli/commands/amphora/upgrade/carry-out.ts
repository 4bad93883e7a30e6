import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../../../../database/connection.js'
import { readProgress } from './candidates.js'
import { judgeProgress, nextUpgrades, type Upgrade } from './plan-upgrade.js'

/** Begins an upgrade. @returns the load balancer's generation that a replacement needs; null for others */
export type Begin = (upgrade: Upgrade) => Promise<number | null>

/** `done`: how many are, with this one. */
export type Event = 'begun' | { seconds: number; done: number }

export type Outcome = {
  done: number
  /** Upgrades that were not begun. */
  waiting: number
  /** Upgrades that have begun and not ended; workers carry them out. */
  running: number
  failed: { upgrade: Upgrade; why: string } | null
}

const POLL_MS = 300
/** Longer than an upgrade in place is waited for by housekeeping; a replacement lets connections end. */
const LIMIT_MS = { 'in place': 330_000, replace: 900_000 }

/**
 * Has workers carry out upgrades, a few at a time. After a failure, or once it should stop, it begins no more; after a
 * failure it still waits for those under way.
 */
export async function carryOut(
  database: Database,
  upgrades: readonly Upgrade[],
  {
    bundle,
    atOnce,
    begin,
    signal,
    report,
  }: {
    bundle: string
    atOnce: number
    begin: Begin
    signal: AbortSignal
    report: (upgrade: Upgrade, event: Event) => void
  },
): Promise<Outcome> {
  const waiting = [...upgrades]
  const running = new Map<Upgrade, { since: number; generation: number | null }>()
  let done = 0
  let failed: Outcome['failed'] = null
  while (!signal.aborted) {
    const next = failed === null ? nextUpgrades(waiting, [...running.keys()], atOnce) : []
    for (const upgrade of next) {
      waiting.splice(waiting.indexOf(upgrade), 1)
      report(upgrade, 'begun')
      running.set(upgrade, { since: performance.now(), generation: await begin(upgrade) })
    }
    if (running.size === 0) break
    await sleep(POLL_MS)
    const progress = await readProgress(
      database,
      [...running.keys()].map(({ amphora }) => amphora),
    )
    for (const [upgrade, { since, generation }] of running) {
      const state = progress.get(upgrade.amphora.id)
      const seconds = (performance.now() - since) / 1000
      const judged = state === undefined ? 'under way' : judgeProgress(upgrade, generation, state, bundle)
      if (judged === 'under way' && seconds * 1000 < LIMIT_MS[upgrade.way]) continue
      running.delete(upgrade)
      if (judged === 'done') {
        done += 1
        report(upgrade, { seconds, done })
      } else {
        const late = `It takes longer than ${LIMIT_MS[upgrade.way] / 60_000} minutes.`
        failed ??= { upgrade, why: judged === 'under way' ? `${late} ${state?.faultText ?? ''}`.trim() : judged.failed }
      }
    }
  }
  return { done, waiting: waiting.length, running: running.size, failed }
}
