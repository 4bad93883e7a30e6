import type * as z from 'zod'
import type { Finding } from '../checks/finding.js'
import type { Logger } from '../log/log.js'
import type { Filters } from '../network/local/security-groups/filters.js'
import type { ComputeDriver } from './driver.js'

/** The settings group `compute`; each driver reads its own options from it. */
export type ComputeGroup = Readonly<Record<string, unknown>>

export type ComputeContext = {
  /** Distinguishes the machines of this installation from others on the host. */
  instance: string
  stateDirectory: string
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
  /** Sizes and places of its machines, as flavors and availability zones may name them; null if it accepts any. */
  offers: { flavors: readonly string[]; zones: readonly string[] } | null
  /** Programs it needs on the controller's host. */
  programs: readonly Program[]
  /** Checks for `krater doctor`. */
  check: (settings: ComputeGroup) => Promise<Finding[]>
  open: (context: ComputeContext) => Promise<ComputeDriver>
}
