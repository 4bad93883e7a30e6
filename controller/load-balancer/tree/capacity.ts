/** What the machine of an amphora gives, as its agent tells. */
export type MachineLimits = { openFiles: number; memoryBytes: number }

/** What a load balancer asks of each of its amphorae. */
export type Demand = {
  /** Of each enabled listener; -1 takes an equal part of what the others leave. */
  connectionLimits: readonly number[]
  /** Addresses on which each listener listens. */
  vips: number
  /** Monitored members, once for each listener that their pool serves. */
  checks: number
}

/** How HAProxy's connections are shared. Together the listeners never take more than there is, so that a full one costs the others nothing. */
export type Shares = {
  /** Of the machine: all listeners together have no more, whatever their limits become while HAProxy runs. */
  total: number
  /** Of each listener whose limit is -1. */
  unlimited: number
}

/** For logs, sockets of its own, threads, stick tables, and connections to the statistics. */
const FILES_OF_ITS_OWN = 200
/**
 * Through them large bodies go from one connection to the other without being copied: so many at once, the others by buffers. What
 * a pipe holds at most counts as memory.
 */
export const PIPES = 250
const FILES_PER_PIPE = 2
const BYTES_PER_PIPE = 64 * 1024
/** A client's and a member's. */
const FILES_PER_CONNECTION = 2
/** Two buffers of 16 KiB, and what is known of a connection on both sides. */
const BYTES_PER_CONNECTION = 40 * 1024
/** Files are set aside for so many checks at once: a member that joins must not change the connections, which takes a reload. */
const CHECKS_AT_ONCE = 1_000
/** The other half is for HAProxy's programs before and after a reload, the agent and the kernel. */
const SHARE_OF_MEMORY = 1 / 2
/** Less than this would be no unlimited listener. */
const LEAST_UNLIMITED = 100
/** More is asked for by name. */
const MOST_UNLIMITED = 50_000

/**
 * What each listener gets where the machine cannot give what is asked for, as with one that became smaller: the same part of everything, and no
 * listener nothing.
 * @returns the shares, and by what all that is asked for by name is to be multiplied
 */
export function scaleDown(limits: MachineLimits, demand: Demand): Shares & { factor: number } {
  const { connectionLimits, checks } = demand
  const { named, unlimited, files, byMemory } = budgetOf(limits, demand)
  const least = connectionLimits.length
  // A member that joins may then cost a reload.
  const withChecks = Math.floor((files - checks) / FILES_PER_CONNECTION)
  const connections = Math.max(least, Math.min(withChecks, byMemory))
  const factor = Math.min(1, connections / Math.max(1, named + unlimited * LEAST_UNLIMITED))
  return { total: connections, unlimited: Math.max(1, Math.floor(LEAST_UNLIMITED * factor)), factor }
}

/** A limit that is to let nobody in stays one, and no other becomes one. */
export const scaled = (limit: number, factor: number): number =>
  limit === 0 ? 0 : Math.max(1, Math.floor(limit * factor))

function budgetOf({ openFiles, memoryBytes }: MachineLimits, { connectionLimits, vips }: Demand) {
  return {
    named: connectionLimits.filter(limit => limit >= 0).reduce((sum, limit) => sum + limit, 0),
    unlimited: connectionLimits.filter(limit => limit < 0).length,
    files: openFiles - FILES_OF_ITS_OWN - PIPES * FILES_PER_PIPE - connectionLimits.length * vips,
    byMemory: Math.floor((memoryBytes * SHARE_OF_MEMORY - PIPES * BYTES_PER_PIPE) / BYTES_PER_CONNECTION),
  }
}

/** @returns the shares, or what is too much, in a sentence with the numbers that fit */
export function shareConnections(limits: MachineLimits, demand: Demand): Shares | { excess: string } {
  const { checks } = demand
  const { named, unlimited, files, byMemory } = budgetOf(limits, demand)
  const reserved = (Math.floor(checks / CHECKS_AT_ONCE) + 1) * CHECKS_AT_ONCE
  const connections = Math.min(Math.floor((files - reserved) / FILES_PER_CONNECTION), byMemory)
  const left = connections - named
  if (left < unlimited * LEAST_UNLIMITED) {
    const forNamed = Math.max(0, connections - unlimited * LEAST_UNLIMITED)
    const filesForChecks = files - FILES_PER_CONNECTION * (named + unlimited * LEAST_UNLIMITED)
    const forChecks = Math.max(0, Math.floor(filesForChecks / CHECKS_AT_ONCE) * CHECKS_AT_ONCE - 1)
    return {
      excess:
        `The machine of an amphora cannot give what the load balancer asks for: connection limits of ${named} in all` +
        ` and ${checks} monitored members (counted for each listener that they serve). With these members, limits of ${forNamed}` +
        ` in all fit; with these limits, ${forChecks} monitored members.`,
    }
  }
  const each = unlimited === 0 ? 0 : Math.min(Math.floor(left / unlimited), MOST_UNLIMITED)
  return { total: connections, unlimited: each }
}
