import type { Haproxy } from '../haproxy/haproxy.js'
import type { Repairs } from '../log/repairs.js'
import { activityOf, childrenOf, isStopped, killIfThere } from '../process/process-table.js'

/** A HAProxy that has not answered for this long does not serve. */
const SILENT_MS = 1_000
/** A HAProxy that has neither answered nor worked for this long hangs: it is killed, and its supervisor restarts it. */
const HUNG_MS = 1_500
/** A HAProxy that has not answered for this long hangs even if it works; until then it may only lack processor time. */
const BUSY_HUNG_MS = 30_000

/** A HAProxy that does not answer: since when, and since when it has not done anything either. */
type Silence = { pid: number; since: number; work: bigint; idleSince: number }

/** Knows whether HAProxy answers, and kills a HAProxy that hangs. */
export class Liveness {
  readonly #haproxy: Pick<Haproxy, 'isReachable'>
  readonly #repairs: Pick<Repairs, 'note'>
  #answeredAt = performance.now()
  #silence: Silence | null = null

  constructor(haproxy: Pick<Haproxy, 'isReachable'>, repairs: Pick<Repairs, 'note'>) {
    this.#haproxy = haproxy
    this.#repairs = repairs
  }

  /** HAProxy answers, or does not run and owes no answer. */
  answered(): void {
    this.#answeredAt = performance.now()
    this.#silence = null
  }

  /** HAProxy does not answer, for a good reason. */
  excuse(): void {
    this.#silence = null
  }

  /** Whether HAProxy does not answer, without a good reason. */
  get isSilent(): boolean {
    return this.#silence !== null
  }

  /** @param now milliseconds, as `performance.now()` */
  answersAt(now: number): boolean {
    return now - this.#answeredAt <= SILENT_MS
  }

  /**
   * HAProxy should answer and does not. Kills it once it has been silent for too long. A HAProxy whose sockets were removed serves but cannot
   * answer: the reconciler repairs that.
   * @param pid of its master
   * @param now milliseconds, as `performance.now()`
   */
  unanswered(pid: number, now: number): void {
    const processes = [pid, ...childrenOf(pid)]
    const silence = this.#haproxy.isReachable() ? this.#continued(pid, processes, now) : null
    this.#silence = silence
    if (silence === null) return
    if (now - silence.idleSince < HUNG_MS && now - silence.since < BUSY_HUNG_MS) return
    this.#repairs.note('HAProxy hung: it is killed and started again')
    this.#silence = null
    // A stopped worker does not notice that its master is gone, and would keep its share of new connections.
    for (const each of processes) killIfThere(each)
  }

  #continued(pid: number, processes: readonly number[], now: number): Silence {
    const activities = processes.map(activityOf)
    const work = activities.reduce((sum, each) => sum + each.work, 0n)
    const isIdle = processes.some(isStopped) || !activities.some(({ running }) => running)
    const before = this.#silence
    if (before === null || before.pid !== pid) return { pid, since: now, work, idleSince: now }
    return !isIdle || work !== before.work ? { ...before, work, idleSince: now } : before
  }
}
