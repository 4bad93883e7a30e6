import { QemuDriver } from '../../../controller/compute/qemu/driver.js'
import { findMachineImage, type MachineImage } from '../../../controller/compute/qemu/image.js'
import type { LabParts } from './machines.js'

/** The image that `npm run images` has built. */
export const builtImage = (): MachineImage => ({ ...findMachineImage(process.cwd(), 'out'), tag: 'amphora' })

/** The driver of emulated machines. @param availableMemory MiB for all of them */
export const openVirtualDriver = (parts: LabParts, availableMemory = 2048): QemuDriver =>
  new QemuDriver({
    ...parts,
    findImage: builtImage,
    acceleration: async () => ({ kind: 'tcg', why: 'tests run everywhere' }),
    size: { memoryMiB: 256, cores: 1 },
    availableMemory: () => availableMemory,
  })
