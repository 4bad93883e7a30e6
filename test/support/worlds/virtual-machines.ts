import { createLabWith } from './machines.js'
import { openVirtualDriver } from './virtual-driver.js'

const PLACEMENT = { driver: 'qemu', flavor: 'qemu', zone: null, memoryMiB: null, cores: null, imageTag: null } as const

/** An installation in which emulated virtual machines can be created. */
export const createVirtualLab = () => createLabWith(parts => openVirtualDriver(parts), PLACEMENT)
