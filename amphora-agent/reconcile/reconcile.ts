import { mkdirSync } from 'node:fs'
import type { Parts } from '../apply/apply.js'
import { passOnInitRepairs, type Repairs } from '../log/repairs.js'
import { type NetworkWatch, watchNetwork } from '../network/watch.js'
import type { Desired } from '../protocol/desired.js'
import { LOG_DIRECTORY } from '../protocol/paths.js'
import type { Mismatch } from '../protocol/repairs.js'
import type { AgentServer } from '../server/server.js'
import { MOMENT_MS, untilNextMoment } from '../time/moments.js'
import { createDisk } from './disk.js'
import { createNetworkRepair, type RepairNetwork } from './network.js'
import { ProgramRepair } from './programs.js'
import { createSshdWatch } from './sshd.js'

/** The kernel tells of changes in the network; it is read anew now and then all the same, which takes seven processes. */
const NETWORK_MS = 300_000

export type ReconcilerOptions = {
  parts: Parts
  repairs: Repairs
  server: AgentServer
  /** Whether this amphora is ending with its last connection: its programs and its network are then left as they are. */
  drains: () => boolean
  /** Runs a piece of work when no other change of the machine is under way. */
  inTurn: (work: () => Promise<void>) => Promise<void>
}

/**
 * The one loop that compares all of the desired state with what is, and puts right what differs: files, sockets, processes, what HAProxy runs,
 * interfaces, addresses, routes, rules, filters, room on the disk. It takes turns with applies.
 */
export class Reconciler {
  readonly #options: ReconcilerOptions
  readonly #disk = createDisk()
  readonly #programs: ProgramRepair
  readonly #repairNetwork: RepairNetwork
  readonly #watchSshd: () => void
  #watch: NetworkWatch | null = null
  #mismatches: readonly Mismatch[] = []
  #networkReadAt = Number.NEGATIVE_INFINITY
  /** What the last reading of the network has found. */
  #network: readonly Mismatch[] = []
  #wasFull = false
  #isWaiting = false
  #isStopped = false
  #timer: NodeJS.Timeout | null = null
  /** The last error that was logged, so that it is not logged again and again. */
  #complaint = ''

  constructor(options: ReconcilerOptions) {
    const { parts, repairs } = options
    this.#options = options
    this.#programs = new ProgramRepair(parts, repairs)
    this.#repairNetwork = createNetworkRepair(repairs, parts.log)
    this.#watchSshd = createSshdWatch(repairs)
  }

  start(): void {
    const { parts, repairs } = this.#options
    this.#watch = watchNetwork(() => this.#networkChanged(), repairs, parts.log)
    this.#run()
  }

  /** HAProxy may run something else than it should: ask it, and compare now. */
  pokeHaproxy(): void {
    this.#programs.pokeHaproxy()
    this.#run()
  }

  mismatches(): Mismatch[] {
    return [...this.#mismatches]
  }

  /** What is desired cannot be brought about from what this agent knows. */
  needsApply(): boolean {
    return this.#mismatches.includes('haproxy') || this.#mismatches.includes('keepalived')
  }

  stop(): void {
    this.#isStopped = true
    this.#watch?.close()
    if (this.#timer) clearTimeout(this.#timer)
  }

  #networkChanged(): void {
    this.#networkReadAt = Number.NEGATIVE_INFINITY
    this.#run()
  }

  #run(): void {
    if (this.#isWaiting || this.#isStopped) return
    this.#isWaiting = true
    void this.#options.inTurn(async () => {
      this.#isWaiting = false
      if (this.#timer) clearTimeout(this.#timer)
      if (!this.#isStopped) await this.#tryCompare()
      // At every second moment when nothing asks for it.
      if (!this.#isStopped) this.#timer = setTimeout(() => this.#run(), untilNextMoment() + MOMENT_MS)
    })
  }

  async #tryCompare(): Promise<void> {
    try {
      await this.#compare()
      this.#complaint = ''
    } catch (error) {
      const words = error instanceof Error ? error.message : String(error)
      if (words !== this.#complaint) this.#options.parts.log.error(`not compared to the end: ${words}`)
      this.#complaint = words
    }
  }

  async #compare(): Promise<void> {
    mkdirSync(LOG_DIRECTORY, { recursive: true })
    const found = new Set<Mismatch>()
    try {
      await this.#repairAgent(found)
      const desired = this.#options.parts.store.confirmed()
      if (desired !== null && !this.#options.drains()) {
        for (const mismatch of await this.#networkMismatches(desired)) found.add(mismatch)
        await this.#programs.repair(desired, found)
      }
    } finally {
      this.#mismatches = [...found]
    }
  }

  /** What the agent itself needs, whatever is desired: room, helpers, its socket, its files. */
  async #repairAgent(found: Set<Mismatch>): Promise<void> {
    const { parts, repairs, server } = this.#options
    const { full, cleared } = this.#disk.check()
    if (cleared || (this.#wasFull && !full)) repairs.note('the disk was full: logs and temporary files are emptied')
    this.#wasFull = full
    if (full) found.add('disk')
    passOnInitRepairs(repairs)
    this.#watchSshd()
    this.#watch?.endStopped()
    if (await server.restore()) repairs.note("the agent's socket was gone")
    for (const text of parts.store.restore()) repairs.note(text)
  }

  /** Reads the network again when something has changed or was missing, or after a long time. */
  async #networkMismatches(desired: Desired): Promise<readonly Mismatch[]> {
    if (performance.now() - this.#networkReadAt > NETWORK_MS || this.#network.length > 0) {
      this.#networkReadAt = performance.now()
      this.#network = await this.#repairNetwork(desired)
    }
    return this.#network
  }
}
