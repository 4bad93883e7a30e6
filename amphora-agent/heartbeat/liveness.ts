import type { Haproxy } from '../haproxy/haproxy.js'
import type { Repairs } from '../log/repairs.js'
import { activityOf, childrenOf, isSuspended, killIfRunning } from '../process/process-table.js'

/** A HAProxy that has not answered for this long is not serving. */
const SILENT_MS = 1_000
/**
 * A HAProxy that has neither answered nor used CPU for this long is hung: it is killed, and its supervisor restarts
 * it.
 */
const HUNG_MS = 1_500
/** A HAProxy that has not answered for this long is hung even if it uses CPU; until then it may only lack CPU time. */
const BUSY_HUNG_MS = 30_000

/** An unanswered HAProxy: since when it has not answered, and since when it has also been idle. */
type Silence = { pid: number; since: number; work: bigint; idleSince: number }

/** Tracks whether HAProxy answers, and kills a HAProxy that hangs. */
export class Liveness {
  readonly #haproxy: Pick<Haproxy, 'isReachable'>
  readonly #repairs: Pick<Repairs, 'note'>
  #answeredAt = performance.now()
  #silence: Silence | null = null

  constructor(haproxy: Pick<Haproxy, 'isReachable'>, repairs: Pick<Repairs, 'note'>) {
    this.#haproxy = haproxy
    this.#repairs = repairs
  }

  /** HAProxy answered, or is not running and so need not answer. */
  answered(): void {
    this.#answeredAt = performance.now()
    this.#silence = null
  }

  /** HAProxy does not answer, for an accepted reason. */
  excuse(): void {
    this.#silence = null
  }

  /** Whether HAProxy does not answer although it should. */
  get isSilent(): boolean {
    return this.#silence !== null
  }

  /** @param now milliseconds, as `performance.now()` */
  answersAt(now: number): boolean {
    return now - this.#answeredAt <= SILENT_MS
  }

  /**
   * HAProxy should answer and does not. Kills it after too long a silence. A HAProxy whose sockets were removed
   * serves but cannot answer: the reconciler repairs that.
   * @param pid of its master
   * @param now milliseconds, as `performance.now()`
   */
  unanswered(pid: number, now: number): void {
    const processes = [pid, ...childrenOf(pid)]
    const silence = this.#haproxy.isReachable() ? this.#continued(pid, processes, now) : null
    this.#silence = silence
    if (silence === null) return
    if (now - silence.idleSince < HUNG_MS && now - silence.since < BUSY_HUNG_MS) return
    this.#repairs.note('HAProxy hung; killed and restarted')
    this.#silence = null
    // A suspended worker does not notice that its master has exited, and would keep its share of new connections.
    for (const each of processes) killIfRunning(each)
  }

  #continued(pid: number, processes: readonly number[], now: number): Silence {
    const activities = processes.map(activityOf)
    const work = activities.reduce((sum, each) => sum + each.work, 0n)
    const isIdle = processes.some(isSuspended) || !activities.some(({ running }) => running)
    const before = this.#silence
    if (before === null || before.pid !== pid) return { pid, since: now, work, idleSince: now }
    return !isIdle || work !== before.work ? { ...before, work, idleSince: now } : before
  }
}
