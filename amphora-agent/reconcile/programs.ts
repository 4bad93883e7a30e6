import { type Parts, runKeepalived } from '../apply/apply.js'
import { planRepair } from '../haproxy/plan-repair.js'
import type { HaproxyObservation } from '../haproxy/runtime/client.js'
import { serverStateFile } from '../haproxy/server-state-file.js'
import { reload } from '../haproxy/transition.js'
import type { Repairs } from '../log/repairs.js'
import type { Desired, HaproxyPart } from '../protocol/desired.js'
import type { Mismatch } from '../protocol/repairs.js'

/** Starts in a row that failed: the configuration itself may be the reason, so the controller is asked for it again. */
const FAILED_STARTS = 3
/** So many differences are told one by one. */
const MOST_TOLD = 3

type WithHaproxy = Desired & { haproxy: HaproxyPart }

/** Has HAProxy and keepalived run as desired. */
export class ProgramRepair {
  readonly #parts: Parts
  readonly #repairs: Repairs
  /** HAProxy may run something else than it should. */
  #askHaproxy = false
  /** Repairs of HAProxy in a row that failed. */
  #failedRepairs = 0

  constructor(parts: Parts, repairs: Repairs) {
    this.#parts = parts
    this.#repairs = repairs
  }

  /** Has the next repair ask HAProxy what it runs. */
  pokeHaproxy(): void {
    this.#askHaproxy = true
  }

  /**
   * @param found takes what cannot be put right
   * @throws HaproxyFailure, KeepalivedFailure, or an error of the runtime socket; the next repair tries again
   */
  async repair(desired: Desired, found: Set<Mismatch>): Promise<void> {
    const { haproxy, keepalived } = this.#parts
    if (haproxy.failures() >= FAILED_STARTS) found.add('haproxy')
    if (keepalived.failures() >= FAILED_STARTS) found.add('keepalived')
    if (keepalived.killStopped()) this.#repairs.note('keepalived was stopped: it is killed and started again')
    if (desired.haproxy !== null) await this.#tryHaproxy({ ...desired, haproxy: desired.haproxy }, found)
    // One that ended is started again by its supervisor, with growing pauses.
    if (keepalived.failures() > 0) return
    if (await runKeepalived(keepalived, desired, desired)) this.#repairs.note('keepalived did not run as desired')
  }

  async #tryHaproxy(desired: WithHaproxy, found: Set<Mismatch>): Promise<void> {
    try {
      await this.#repairHaproxy(desired)
      this.#failedRepairs = 0
    } catch (error) {
      this.#failedRepairs += 1
      if (this.#failedRepairs >= FAILED_STARTS) found.add('haproxy')
      throw error
    }
  }

  async #repairHaproxy(desired: WithHaproxy): Promise<void> {
    const { haproxy, knownDown } = this.#parts
    // One that ended is started again by its supervisor, with growing pauses.
    if (haproxy.pid() === null) {
      if (haproxy.failures() === 0) await haproxy.start(serverStateFile(null, desired.haproxy, knownDown.keys()))
      return
    }
    if (!haproxy.isReachable()) {
      await reload(this.#parts, desired.haproxy, desired.haproxy, 'its sockets were gone')
      this.#repairs.note("HAProxy's sockets were gone: another HAProxy took over")
      return
    }
    const present = this.#askHaproxy ? await haproxy.observe(true) : null
    if (present !== null) await this.#putRight(desired, present)
  }

  async #putRight(desired: WithHaproxy, present: HaproxyObservation): Promise<void> {
    const { haproxy } = this.#parts
    const { found, commands, reload: needsReload } = planRepair(desired, present)
    const isForeign = haproxy.isForeign(present.workerPid)
    for (const command of commands) await haproxy.command(command)
    if (needsReload || isForeign) {
      // Servers that differ themselves have no state worth keeping.
      const applied = found.some(text => text.startsWith('server')) ? null : desired.haproxy
      await reload(this.#parts, applied, desired.haproxy, found[0] ?? 'somebody had reloaded it')
    }
    this.#askHaproxy = false
    if (isForeign) this.#repairs.note('HAProxy had been reloaded by somebody else')
    for (const text of found.slice(0, MOST_TOLD)) this.#repairs.note(text)
    if (found.length > MOST_TOLD) {
      this.#repairs.note(`and ${found.length - MOST_TOLD} more differences of HAProxy`)
    }
  }
}
