import type { Logger } from '../../log/log.js'
import type { OvsdbAddress } from '../../ovsdb/address.js'
import { OvsdbClient } from '../../ovsdb/client.js'
import type { Rows } from '../../ovsdb/columns.js'
import type { OvsdbTls } from '../../ovsdb/connection.js'
import { SOUTHBOUND, type Southbound as SouthboundTables } from './columns.js'
import { type ChassisState, isInstalled, type Progress, progressOf } from './installed.js'

export type SouthboundOptions = { addresses: readonly OvsdbAddress[]; tls?: OvsdbTls | undefined; log: Logger }

type InstalledOptions = {
  computeMs?: number
  installMs?: number
  /** Raises `nb_cfg`. */
  raise?: () => Promise<unknown>
  signal?: AbortSignal
}

/** Without its database, northd tries again after 1, 2, 4 and 8 seconds, and then every 8. */
const COMPUTE_LIMIT_MS = 40_000
/** For a change to reach all hypervisors. */
const INSTALL_LIMIT_MS = 15_000
/** Longer than hypervisors need, and shorter than their pauses between attempts to reach their switch. */
const RAISE_AFTER_MS = 4_000

/** OVN's southbound database: what became of the northbound one, and the health of members. */
export class Southbound {
  readonly client: OvsdbClient<SouthboundTables>
  readonly #missed = new Map<string, number>()

  constructor({ addresses, tls, log }: SouthboundOptions) {
    this.client = new OvsdbClient({ addresses, database: 'OVN_Southbound', tables: SOUTHBOUND, tls, log })
  }

  /**
   * Waits until a change is installed on all hypervisors that are not away. Those that do not have it in time are away
   * from then on, unless no other one has it either. A hypervisor whose switch has ended meanwhile installs the change,
   * and tells it with the next one only: `nb_cfg` is raised for it.
   * @param change what `nb_cfg` became with it
   * @param options.computeMs for northd, which may be looking for the leader of a cluster
   * @param options.installMs for the hypervisors from then on
   * @returns how far it came within these limits
   * @throws OvsdbUnreachable if the southbound database does not serve
   */
  async installed(
    change: number,
    { computeMs = COMPUTE_LIMIT_MS, installMs = INSTALL_LIMIT_MS, raise, signal }: InstalledOptions = {},
  ): Promise<Progress> {
    // A database that was made anew counts from its beginning.
    for (const [name, missed] of this.#missed) if (missed > change) this.#missed.delete(name)
    await this.client.ready(computeMs, signal)
    const isComputed = await this.client.until(() => this.#progress(change).isComputed, computeMs, signal)
    if (!isComputed) return this.#progress(change)
    const isDone = () => isInstalled(this.#progress(change))
    const firstMs = Math.min(RAISE_AFTER_MS, installMs)
    if (!(await this.client.until(isDone, firstMs, signal))) {
      await raise?.()
      await this.client.until(isDone, installMs - firstMs, signal)
    }
    const progress = this.#progress(change)
    if (!progress.isCarriedOut) return progress
    for (const { name } of progress.behind) this.#missed.set(name, change)
    return this.#progress(change)
  }

  chassis(): ChassisState[] {
    const hosts = this.client.rows('Chassis')
    return [...this.client.rows('Chassis_Private').values()].flatMap(({ name, chassis, nb_cfg }) => {
      const host = chassis === null ? undefined : hosts.get(chassis)
      return host === undefined ? [] : [{ name, hostname: host.hostname, change: nb_cfg }]
    })
  }

  /** The last change of the northbound database that northd has worked out. */
  computed(): number {
    const [global] = this.client.rows('SB_Global').values()
    return global?.nb_cfg ?? 0
  }

  /** Names of those that may carry gateways: those that are told to, or all if none is. */
  gateways(): string[] {
    const all = [...this.client.rows('Chassis').values()]
    const told = all.filter(({ other_config }) =>
      (other_config['ovn-cms-options'] ?? '').split(',').includes('enable-chassis-as-gw'),
    )
    return (told.length > 0 ? told : all).map(({ name }) => name).sort()
  }

  serviceMonitors(): Rows<SouthboundTables['Service_Monitor']> {
    return this.client.rows('Service_Monitor')
  }

  stop(): Promise<void> {
    return this.client.stop()
  }

  #progress(change: number): Progress {
    return progressOf(change, this.computed(), this.chassis(), this.#missed)
  }
}
