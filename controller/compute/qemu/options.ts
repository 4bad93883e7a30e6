import * as z from 'zod'

/** MiB with which a machine starts, and processors that one QEMU is known to carry. */
const LEAST_MEMORY = 192
const MOST_CORES = 64

/** Why a virtual machine cannot have this size, as a clause; null if it can. Pure. */
export function sizeProblem({
  memory = LEAST_MEMORY,
  cores = 1,
}: {
  memory?: number | undefined
  cores?: number | undefined
}) {
  if (memory < LEAST_MEMORY) return `a virtual machine needs at least ${LEAST_MEMORY} MiB of memory`
  return cores > MOST_CORES ? `a virtual machine has at most ${MOST_CORES} cores` : null
}

/** Settings of the driver `qemu`, in the group `compute`. */
export const qemuOptions = {
  machine_memory: z.coerce
    .number()
    .int()
    .min(LEAST_MEMORY)
    .default(256)
    .describe('Memory of a virtual machine in MiB, if its flavor says nothing; its QEMU needs up to 256 more'),
  machine_cores: z.coerce
    .number()
    .int()
    .min(1)
    .max(MOST_CORES)
    .default(1)
    .describe('Processors of a virtual machine, if its flavor says nothing'),
  machines_memory: z.coerce
    .number()
    .int()
    .min(0)
    .default(0)
    .describe('Memory in MiB for all virtual machines of this host together; 0: three quarters of what it has'),
  acceleration: z
    .enum(['auto', 'kvm', 'tcg'])
    .default('auto')
    .describe('How virtual machines run: with KVM, by emulation (tcg), or whatever works on this host'),
}
