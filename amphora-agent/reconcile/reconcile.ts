import { mkdirSync } from 'node:fs'
import type { Parts } from '../apply/apply.js'
import { SIGNATURES, TABLE } from '../datagrams/ruleset.js'
import { noteInitRepairs, type Repairs } from '../log/repairs.js'
import { type NetworkWatch, watchNetwork } from '../network/watch.js'
import type { Desired } from '../protocol/desired.js'
import { LOG_DIRECTORY } from '../protocol/paths.js'
import type { Mismatch } from '../protocol/repairs.js'
import type { AgentServer } from '../server/server.js'
import { TICK_MS, untilNextTick } from '../time/ticks.js'
import { CertificateRepair } from './certificates.js'
import { createDisk } from './disk.js'
import { createNetworkRepair, type RepairNetwork } from './network.js'
import { ProgramRepair } from './programs.js'
import { createSshdWatch } from './sshd.js'

/** The kernel reports network changes; read the network this often nevertheless. A reading takes seven processes. */
const NETWORK_MS = 300_000

export type ReconcilerOptions = {
  parts: Parts
  repairs: Repairs
  server: AgentServer
  /** Whether this amphora is draining: its programs and network are then left as they are. */
  isDraining: () => boolean
  /** Runs a piece of work when no other change of the machine is in progress. */
  inTurn: (work: () => Promise<void>) => Promise<void>
}

/**
 * The one loop that compares the desired state with the actual one and repairs differences: files, sockets,
 * processes, HAProxy's running configuration and certificates, interfaces, addresses, routes, rules, filters, disk space. It takes
 * turns with applies.
 */
export class Reconciler {
  readonly #options: ReconcilerOptions
  readonly #disk = createDisk()
  readonly #programs: ProgramRepair
  readonly #certificates: CertificateRepair
  readonly #repairNetwork: RepairNetwork
  readonly #watchSshd: () => void
  #watch: NetworkWatch | null = null
  #mismatches: readonly Mismatch[] = []
  #networkReadAt = Number.NEGATIVE_INFINITY
  /** Result of the last reading of the network. */
  #network: readonly Mismatch[] = []
  #wasFull = false
  #isWaiting = false
  #isStopped = false
  #timer: NodeJS.Timeout | null = null
  /** The last error logged, so that it is not logged repeatedly. */
  #lastError = ''

  constructor(options: ReconcilerOptions) {
    const { parts, repairs } = options
    this.#options = options
    this.#programs = new ProgramRepair(parts, repairs)
    this.#certificates = new CertificateRepair(parts, repairs)
    this.#repairNetwork = createNetworkRepair(repairs, parts.log)
    this.#watchSshd = createSshdWatch(repairs)
  }

  start(): void {
    const { parts, repairs } = this.#options
    this.#watch = watchNetwork({
      onChange: () => this.#networkChanged(),
      datagrams: { table: TABLE, signatures: SIGNATURES },
      onDatagrams: parts.datagrams.tableChanged,
      repairs,
      log: parts.log,
    })
    this.#run()
  }

  /** HAProxy's running configuration may differ from the desired one: compare now. */
  requestHaproxyCheck(): void {
    this.#programs.requestHaproxyCheck()
    this.#run()
  }

  /** There is news for a certificate. */
  requestCertificateCheck(): void {
    this.#run()
  }

  /** Somebody changed the table of UDP and SCTP listeners. */
  requestDatagramsCheck(): void {
    this.#run()
  }

  mismatches(): Mismatch[] {
    return [...this.#mismatches]
  }

  /** Whether the agent cannot restore the desired state from what it has stored. */
  needsApply(): boolean {
    return this.#mismatches.includes('haproxy') || this.#mismatches.includes('keepalived')
  }

  /** Tries again at once to read what the key manager did not give out. */
  readMissingNow(): void {
    this.#certificates.readMissingNow()
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
      if (!this.#isStopped) await this.#tryReconcile()
      // Without a trigger, run at every second tick.
      if (!this.#isStopped) this.#timer = setTimeout(() => this.#run(), untilNextTick() + TICK_MS)
    })
  }

  async #tryReconcile(): Promise<void> {
    try {
      await this.#reconcile()
      this.#lastError = ''
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error)
      if (message !== this.#lastError) this.#options.parts.log.error(`reconciliation failed: ${message}`)
      this.#lastError = message
    }
  }

  async #reconcile(): Promise<void> {
    mkdirSync(LOG_DIRECTORY, { recursive: true })
    const found = new Set<Mismatch>()
    try {
      await this.#repairAgent(found)
      const desired = this.#options.parts.store.confirmed()
      if (desired !== null && !this.#options.isDraining()) {
        for (const mismatch of await this.#networkMismatches(desired)) found.add(mismatch)
        await this.#repairDatagrams(found)
        await this.#programs.repair(desired, found)
        await this.#certificates.repair(desired)
      }
    } finally {
      this.#mismatches = [...found]
    }
  }

  /** Repairs what the agent itself needs in any state: disk space, helpers, its socket, its files. */
  async #repairAgent(found: Set<Mismatch>): Promise<void> {
    const { parts, repairs, server } = this.#options
    const { full, cleared } = this.#disk.check()
    if (cleared || (this.#wasFull && !full)) repairs.note('the disk was full; logs and temporary files were deleted')
    this.#wasFull = full
    if (full) found.add('disk')
    noteInitRepairs(repairs)
    this.#watchSshd()
    this.#watch?.killSuspended()
    if (await server.restore()) repairs.note("the agent's socket was removed")
    for (const text of parts.store.restore()) repairs.note(text)
  }

  async #repairDatagrams(found: Set<Mismatch>): Promise<void> {
    const { parts, repairs } = this.#options
    try {
      if (await parts.datagrams.repair()) repairs.note('the rules for UDP and SCTP were changed')
    } catch (error) {
      found.add('filter')
      parts.log.error(
        `cannot repair the rules for UDP and SCTP: ${error instanceof Error ? error.message : String(error)}`,
      )
    }
  }

  /** Reads the network again if something changed or was missing, or after NETWORK_MS. */
  async #networkMismatches(desired: Desired): Promise<readonly Mismatch[]> {
    if (performance.now() - this.#networkReadAt > NETWORK_MS || this.#network.length > 0) {
      this.#networkReadAt = performance.now()
      this.#network = await this.#repairNetwork(desired)
    }
    return this.#network
  }
}
