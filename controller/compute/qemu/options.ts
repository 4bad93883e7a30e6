import * as z from 'zod'

/** Settings of the driver `qemu`, in the group `compute`. */
export const qemuOptions = {
  machine_memory: z.coerce
    .number()
    .int()
    .min(192)
    .default(256)
    .describe('Memory of a virtual machine in MiB, if its flavor says nothing; its QEMU needs up to 256 more'),
  machine_cores: z.coerce
    .number()
    .int()
    .min(1)
    .max(64)
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
