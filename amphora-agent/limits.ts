import { readFileSync } from 'node:fs'
import { totalmem } from 'node:os'
import type { MachineLimits } from './protocol/messages.js'

/**
 * The hard limit of open files, which HAProxy inherits and raises its own limit to, and the memory of the machine
 * or of its control group.
 * @param allowedBytes the memory limit from boot.json: an amphora does not see the control groups that it is in
 */
export function machineLimits(allowedBytes = 0): MachineLimits {
  const constrained = allowedBytes || process.constrainedMemory()
  return {
    openFiles: hardLimitOfFiles(readFileSync('/proc/self/limits', 'utf8')),
    memoryBytes: constrained > 0 ? Math.min(constrained, totalmem()) : totalmem(),
  }
}

/** What "unlimited" open files means: the kernel's own bound. */
const UNLIMITED = 1_048_576

/** @param text of /proc/self/limits */
export function hardLimitOfFiles(text: string): number {
  const [, hard] = /^Max open files +\S+ +(\S+)/m.exec(text) ?? []
  const files = Number(hard)
  return Number.isSafeInteger(files) && files > 0 ? files : UNLIMITED
}
