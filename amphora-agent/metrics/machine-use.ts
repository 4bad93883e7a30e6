import { readdirSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { machineLimits } from '../limits.js'
import { cpuSecondsOf, memoryOf } from '../process/process-table.js'
import type { Boot } from '../protocol/boot.js'

/** What the processes of this machine used at one moment. */
export type UseReading = { cpuSeconds: number; memoryKib: number; atSeconds: number }

/** Share of the machine's processors and memory in use, in percent. */
export type MachineUse = { cpu: number; memory: number }

/** Readings that are closer together tell nothing. */
const SHORTEST_SECONDS = 1

/**
 * Measures this machine's own processes: load average and free memory are those of the host, which other
 * tenants' amphorae share.
 * @returns a function that gives the use of processors since its last call, and of memory now
 */
export function createMachineUse(limits: NonNullable<Boot['limits']>, read = readProcesses): () => MachineUse {
  const processors = limits.processors ?? availableParallelism()
  const memoryKib = machineLimits(limits.memoryBytes).memoryBytes / 1024
  let before = read()
  let cpu = 0
  return () => {
    const now = read()
    const seconds = now.atSeconds - before.atSeconds
    if (seconds >= SHORTEST_SECONDS) {
      // Processes that ended take their time with them.
      cpu = percent(now.cpuSeconds - before.cpuSeconds, seconds * processors)
      before = now
    }
    return { cpu, memory: percent(now.memoryKib, memoryKib) }
  }
}

const percent = (part: number, whole: number): number => Math.min(100, Math.max(0, (part / whole) * 100))

function readProcesses(): UseReading {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return {
    cpuSeconds: pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0),
    memoryKib: pids.reduce((sum, pid) => sum + memoryOf(pid), 0),
    atSeconds: performance.now() / 1000,
  }
}
