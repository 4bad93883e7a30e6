import { type Parts, runKeepalived } from '../apply/apply.js'
import { planRepair } from '../haproxy/plan-repair.js'
import type { HaproxyObservation } from '../haproxy/runtime/client.js'
import { serverStateFile } from '../haproxy/server-state-file.js'
import { reload } from '../haproxy/transition.js'
import type { Repairs } from '../log/repairs.js'
import type { Desired, HaproxyPart } from '../protocol/desired.js'
import type { Mismatch } from '../protocol/repairs.js'

/**
 * After this many failed starts in a row the configuration itself may be the cause, so ask the controller for it
 * again.
 */
const MAX_FAILURES = 3
/** The first pause after a reload that left a difference, and the longest. */
const [FIRST_PAUSE_MS, LONGEST_PAUSE_MS] = [1_000, 60_000]
/** Differences to report individually. */
const MAX_REPORTED = 3

type WithHaproxy = Desired & { haproxy: HaproxyPart }

/** Makes HAProxy and keepalived run as desired. */
export class ProgramRepair {
  readonly #parts: Parts
  readonly #repairs: Repairs
  /** Whether HAProxy's running configuration may differ from the desired one. */
  #checkHaproxy = false
  /** Consecutive failed repairs of HAProxy. */
  #failedRepairs = 0
  /** After a reload that left a difference: how long the next one waits, and until when. */
  #pauseMs = 0
  #pausedUntil = Number.NEGATIVE_INFINITY

  constructor(parts: Parts, repairs: Repairs) {
    this.#parts = parts
    this.#repairs = repairs
  }

  /** Makes the next repair check what HAProxy runs. */
  requestHaproxyCheck(): void {
    this.#checkHaproxy = true
  }

  /**
   * @param found receives what cannot be repaired
   * @throws HaproxyFailure, KeepalivedFailure, or an error of the runtime socket; the next repair tries again
   */
  async repair(desired: Desired, found: Set<Mismatch>): Promise<void> {
    const { haproxy, keepalived } = this.#parts
    if (haproxy.failures() >= MAX_FAILURES) found.add('haproxy')
    if (keepalived.failures() >= MAX_FAILURES) found.add('keepalived')
    if (keepalived.killSuspended()) this.#repairs.note('keepalived was suspended; killed and restarted')
    if (desired.haproxy !== null) await this.#tryHaproxy({ ...desired, haproxy: desired.haproxy }, found)
    // The supervisor restarts a keepalived that exited, with growing pauses.
    if (keepalived.failures() > 0) return
    if (await runKeepalived(keepalived, desired, desired)) this.#repairs.note('keepalived did not run as desired')
  }

  async #tryHaproxy(desired: WithHaproxy, found: Set<Mismatch>): Promise<void> {
    try {
      await this.#repairHaproxy(desired, found)
      this.#failedRepairs = 0
    } catch (error) {
      this.#failedRepairs += 1
      if (this.#failedRepairs >= MAX_FAILURES) found.add('haproxy')
      throw error
    }
  }

  async #repairHaproxy(desired: WithHaproxy, mismatches: Set<Mismatch>): Promise<void> {
    const { haproxy, knownDown } = this.#parts
    // The supervisor restarts a HAProxy that exited, with growing pauses.
    if (haproxy.pid() === null) {
      if (haproxy.failures() === 0) await haproxy.start(serverStateFile(null, desired.haproxy, knownDown.keys()))
      return
    }
    if (!haproxy.isReachable()) {
      await reload(this.#parts, desired.haproxy, desired.haproxy, 'its sockets were removed')
      this.#repairs.note("HAProxy's sockets were removed; replaced by a new HAProxy")
      return
    }
    const present = this.#checkHaproxy ? await haproxy.observe(true) : null
    if (present !== null) await this.#repairDifferences(desired, present, mismatches)
  }

  async #repairDifferences(
    desired: WithHaproxy,
    present: HaproxyObservation,
    mismatches: Set<Mismatch>,
  ): Promise<void> {
    const { haproxy } = this.#parts
    const { found, commands, reload: needsReload } = planRepair(desired, present)
    const isForeign = haproxy.isForeign(present.workerPid)
    for (const command of commands) await haproxy.command(command)
    if (needsReload && !isForeign && performance.now() < this.#pausedUntil) {
      mismatches.add('haproxy')
      return
    }
    if (needsReload || isForeign) {
      // If servers differ, their states are not worth keeping.
      const applied = found.some(text => text.startsWith('server')) ? null : desired.haproxy
      await reload(this.#parts, applied, desired.haproxy, found[0] ?? 'it was reloaded outside the agent')
      await this.#pauseIfInVain(desired)
    }
    this.#checkHaproxy = false
    if (isForeign) this.#repairs.note('HAProxy was reloaded outside the agent')
    for (const text of found.slice(0, MAX_REPORTED)) this.#repairs.note(text)
    if (found.length > MAX_REPORTED) {
      this.#repairs.note(`and ${found.length - MAX_REPORTED} more differences of HAProxy`)
    }
  }

  /** A difference that a reload leaves would cause the next reload at once, and no end of them. */
  async #pauseIfInVain(desired: WithHaproxy): Promise<void> {
    const present = await this.#parts.haproxy.observe(true)
    const isInVain = present !== null && planRepair(desired, present).reload
    this.#pauseMs = isInVain ? Math.min(Math.max(FIRST_PAUSE_MS, this.#pauseMs * 2), LONGEST_PAUSE_MS) : 0
    this.#pausedUntil = performance.now() + this.#pauseMs
  }
}
