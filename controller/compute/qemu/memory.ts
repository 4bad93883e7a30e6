import { readFileSync } from 'node:fs'
import { ComputeUnavailable } from '../driver.js'

/** Part of the host's memory for virtual machines if the settings do not say otherwise. */
const SHARE = 0.75

/** The host's memory in MiB. */
export function hostMemory(): number {
  const [, kibibytes] = /^MemTotal: +(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8')) ?? []
  return Math.floor(Number(kibibytes) / 1024)
}

/** MiB for all virtual machines together. Pure. @param setting 0: a part of the host's memory */
export const memoryForMachines = (setting: number, host: number): number =>
  setting > 0 ? setting : Math.floor(host * SHARE)

/**
 * Memory is promised once only: a machine that ran out of it would end amid traffic. Pure.
 * @param promised MiB of each machine, with the new one
 * @throws ComputeUnavailable if they exceed what there is
 */
export function requireMemory(promised: readonly number[], available: number): void {
  const total = promised.reduce((sum, one) => sum + one, 0)
  if (total <= available) return
  throw new ComputeUnavailable(
    `This host has ${available} MiB of memory for virtual machines, and ${promised.length} would need ${total}. Use a smaller compute flavor, remove load balancers, or raise compute.machines_memory.`,
  )
}
