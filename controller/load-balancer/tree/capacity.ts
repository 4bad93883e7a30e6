/** Resources of an amphora's machine, as reported by its agent. */
export type MachineLimits = {
  openFiles: number
  memoryBytes: number
  /** Entries of the kernel's connection tracking. Unknown for an older agent. */
  flows?: number | null | undefined
}

/** Demand of a load balancer on each of its amphorae. */
export type Demand = {
  /** Of each enabled listener of HAProxy; -1 takes an equal share of what the named limits leave. */
  connectionLimits: readonly number[]
  /** Number of addresses that each listener listens on. */
  vips: number
  /** Number of monitored members, counted once per listener that uses their pool. */
  checks: number
}

/**
 * How listeners share HAProxy's connections. The shares never exceed the total, so that a full listener takes
 * none from the others.
 */
export type Shares = {
  /** Limit of all listeners together, also when their own limits change while HAProxy runs. */
  total: number
  /** Limit of each listener with -1. */
  unlimited: number
}

/** For HAProxy itself: logs, sockets, threads, stick tables, and connections to the statistics. */
const OVERHEAD_FILES = 200
/**
 * Number of pipes through which HAProxy splices large bodies without copying; further transfers use buffers.
 * Memory counts the capacity of each pipe.
 */
export const PIPES = 250
const FILES_PER_PIPE = 2
const BYTES_PER_PIPE = 64 * 1024
/** One for the client, one for the member. */
const FILES_PER_CONNECTION = 2
/** Two buffers of 16 KiB, and the state of both sides. */
const BYTES_PER_CONNECTION = 40 * 1024
/**
 * Files are reserved for checks in steps of this size: a new member must not change the connection limits,
 * which takes a reload.
 */
const CHECKS_STEP = 1_000
/** The other half is for HAProxy's other processes before and after a reload, the agent and the kernel. */
const MEMORY_SHARE = 1 / 2
/** Minimum share of a listener with -1. */
const MIN_UNLIMITED = 100
/** Maximum share of a listener with -1; a larger limit must be set explicitly. */
const MAX_UNLIMITED = 50_000

/**
 * Scales all limits down equally if the machine cannot meet the demand, for example because it became smaller.
 * No listener ends up without connections.
 * @returns the shares, and the factor for explicit limits
 */
export function scaleDown(limits: MachineLimits, demand: Demand): Shares & { factor: number } {
  const { connectionLimits, checks } = demand
  const { named, unlimited, files, byMemory } = budget(limits, demand)
  const min = connectionLimits.length
  // Reserves no files for further checks, so a new member may need a reload.
  const withChecks = Math.floor((files - checks) / FILES_PER_CONNECTION)
  const connections = Math.max(min, Math.min(withChecks, byMemory))
  const factor = Math.min(1, connections / Math.max(1, named + unlimited * MIN_UNLIMITED))
  return { total: connections, unlimited: Math.max(1, Math.floor(MIN_UNLIMITED * factor)), factor }
}

/** Scales a limit. 0 stays 0, and no other limit becomes 0. */
export const scaled = (limit: number, factor: number): number =>
  limit === 0 ? 0 : Math.max(1, Math.floor(limit * factor))

function budget({ openFiles, memoryBytes }: MachineLimits, { connectionLimits, vips }: Demand) {
  return {
    named: connectionLimits.filter(limit => limit >= 0).reduce((sum, limit) => sum + limit, 0),
    unlimited: connectionLimits.filter(limit => limit < 0).length,
    files: openFiles - OVERHEAD_FILES - PIPES * FILES_PER_PIPE - connectionLimits.length * vips,
    byMemory: Math.floor((memoryBytes * MEMORY_SHARE - PIPES * BYTES_PER_PIPE) / BYTES_PER_CONNECTION),
  }
}

/** @returns the shares, or in `excess` what exceeds the machine and what would fit */
export function shareConnections(limits: MachineLimits, demand: Demand): Shares | { excess: string } {
  const { checks } = demand
  const { named, unlimited, files, byMemory } = budget(limits, demand)
  const reserved = (Math.floor(checks / CHECKS_STEP) + 1) * CHECKS_STEP
  const connections = Math.min(Math.floor((files - reserved) / FILES_PER_CONNECTION), byMemory)
  const left = connections - named
  if (left < unlimited * MIN_UNLIMITED) {
    const forNamed = Math.max(0, connections - unlimited * MIN_UNLIMITED)
    const filesForChecks = files - FILES_PER_CONNECTION * (named + unlimited * MIN_UNLIMITED)
    const forChecks = Math.max(0, Math.floor(filesForChecks / CHECKS_STEP) * CHECKS_STEP - 1)
    return {
      excess:
        `The load balancer exceeds its capacity: connection limits of ${named} in all and ${checks} monitored members` +
        ` (counted once per listener that uses their pool). With these members, connection limits of ${forNamed} in all fit;` +
        ` with these limits, ${forChecks} monitored members fit.`,
    }
  }
  const each = unlimited === 0 ? 0 : Math.min(Math.floor(left / unlimited), MAX_UNLIMITED)
  return { total: connections, unlimited: each }
}
