import { setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../../../../database/connection.js'
import type { Begun } from './begin.js'
import { readProgress } from './candidates.js'
import { judgeProgress, nextUpgrades, type Upgrade } from './plan-upgrade.js'

/** `done`: how many are, with this one. `left`: why it was not begun. */
export type Event = 'begun' | { seconds: number; done: number } | { left: string }

export type Outcome = {
  done: number
  /** Upgrades of amphorae that have changed since they were planned. */
  left: number
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
    begin: (upgrade: Upgrade) => Promise<Begun>
    signal: AbortSignal
    report: (upgrade: Upgrade, event: Event) => void
  },
): Promise<Outcome> {
  const waiting = [...upgrades]
  const running = new Map<Upgrade, { since: number; generation: number | null }>()
  let done = 0
  let left = 0
  let failed: Outcome['failed'] = null
  while (!signal.aborted) {
    const next = failed === null ? nextUpgrades(waiting, [...running.keys()], atOnce) : []
    for (const upgrade of next) {
      waiting.splice(waiting.indexOf(upgrade), 1)
      const begun = await begin(upgrade)
      if ('left' in begun) {
        left += 1
        report(upgrade, begun)
      } else {
        report(upgrade, 'begun')
        running.set(upgrade, { since: performance.now(), ...begun })
      }
    }
    if (running.size === 0) {
      if (next.length > 0) continue
      break
    }
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
  return { done, left, waiting: waiting.length, running: running.size, failed }
}
