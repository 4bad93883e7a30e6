import type * as z from 'zod'
import type { Finding } from '../checks/finding.js'
import type { Database } from '../database/connection.js'
import type { Logger } from '../log/log.js'
import type { NetworkDriver } from '../network/driver.js'
import type { Fabric } from '../network/local/fabric.js'
import type { Filters } from '../network/local/security-groups/filters.js'
import type { ComputeDriver, Placement } from './driver.js'
import type { EnrolledContext } from './host-agents.js'

/** The settings group `compute`; each driver reads its own options from it. */
export type ComputeGroup = Readonly<Record<string, unknown>>

export type ComputeContext = {
  /** Distinguishes the machines of this installation from others on the host. */
  instance: string
  stateDirectory: string
  /** The role of the load balancer service; null in commands that work without a database. */
  database: Database | null
  /** Null in commands that work without a database. */
  network: NetworkDriver | null
  /** How enrolled hosts are reached; null in commands that reach none. */
  enrolled: EnrolledContext | null
  /** What connects its machines on this host. */
  fabric: Fabric
  networkMtu: (networkId: string) => Promise<number>
  /** What a port may send and receive; null: everything. */
  portFilters: (portId: string) => Promise<Filters | null>
  /** The agent, bundled into one ES module. */
  agentBundle: string
  settings: ComputeGroup
  log: Logger
}

/** A program on the host, with its Debian package. */
export type Program = readonly [program: string, debianPackage: string]

/**
 * Describes a compute driver before it is opened. To add one, create a folder with such a value and list it in
 * drivers.ts.
 */
export type ComputeDriverKind = {
  name: string
  /** False if its amphorae exist only in the database. */
  runsMachines: boolean
  options: Readonly<Record<string, z.ZodType>>
  /** Whether the settings ask for it; always, if absent. */
  isUsed?: (settings: ComputeGroup) => boolean
  /**
   * Compute flavors and zones that it has without a setting; null if it accepts any. `zones` is null if its hosts have
   * zones of their own.
   */
  offers: { flavors: readonly string[]; zones: readonly string[] | null } | null
  /** Size of its machines for a flavor that says nothing about it; see Placement. */
  size: (settings: ComputeGroup) => Pick<Placement, 'memoryMiB' | 'cores'>
  /** Why no machine of it can have the size that a flavor asks for, as a clause; null if one can. */
  sizeProblem?: (size: { memory?: number | undefined; cores?: number | undefined }) => string | null
  /** Whether its machines run an image: always, if there is one, or never. */
  images: 'required' | 'optional' | 'none'
  /**
   * Whether its machines are hosts by themselves: they have a management address of their own and get no management port,
   * belong to no controller host, and only they can take an amphora from its networks.
   */
  ownsManagement: boolean
  /** From the start of a machine to its agent, at most: a slower one has failed. */
  startSeconds: number
  /** Programs it needs on the controller's host. */
  programs: readonly Program[]
  /** Checks for `krater doctor`. */
  check: (settings: ComputeGroup) => Promise<Finding[]>
  /** @throws ComputeUnavailable */
  open: (context: ComputeContext) => Promise<ComputeDriver>
}
