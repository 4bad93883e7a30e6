import { existsSync, readFileSync } from 'node:fs'
import { totalmem } from 'node:os'
import type { MachineLimits } from './protocol/messages.js'

/** Absent from a kernel that tracks no connections yet. */
const TRACKED_CONNECTIONS = '/proc/sys/net/netfilter/nf_conntrack_max'

/**
 * The hard limit of open files, which HAProxy inherits and raises its own limit to, the memory of the machine or of its
 * control group, and the entries of the connection tracking in its network namespace.
 * @param allowedBytes the memory limit from boot.json: an amphora does not see the control groups that it is in
 */
export function machineLimits(allowedBytes = 0): MachineLimits {
  const constrained = allowedBytes || process.constrainedMemory()
  return {
    openFiles: hardLimitOfFiles(readFileSync('/proc/self/limits', 'utf8')),
    memoryBytes: constrained > 0 ? Math.min(constrained, totalmem()) : totalmem(),
    ...(existsSync(TRACKED_CONNECTIONS) && { flows: boundOf(readFileSync(TRACKED_CONNECTIONS, 'utf8')) }),
  }
}

/** What "unlimited" means: for open files, the kernel's own bound. */
const UNLIMITED = 1_048_576

/** @param text of /proc/self/limits */
export function hardLimitOfFiles(text: string): number {
  const [, hard] = /^Max open files +\S+ +(\S+)/m.exec(text) ?? []
  return boundOf(hard)
}

function boundOf(text: string | undefined): number {
  const bound = Number(text)
  return Number.isSafeInteger(bound) && bound > 0 ? bound : UNLIMITED
}
