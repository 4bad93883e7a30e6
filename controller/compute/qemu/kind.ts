import { join } from 'node:path'
import * as z from 'zod'
import { LOCAL_ZONE } from '../driver.js'
import type { ComputeDriverKind, ComputeGroup } from '../kind.js'
import { namespaceOptions } from '../namespace/options.js'
import { qemuOptions, sizeProblem } from './options.js'

/** With the accounts, which machines of both drivers take from one range. */
const ownSettings = z.object({ ...namespaceOptions, ...qemuOptions })

/** Runs amphorae in virtual machines of the controller's host. The driver's code is loaded on use. */
export const qemuKind: ComputeDriverKind = {
  name: 'qemu',
  runsMachines: true,
  options: qemuOptions,
  offers: { flavors: ['qemu'], zones: [LOCAL_ZONE] },
  size: sizeOf,
  sizeProblem,
  images: 'required',
  ownsManagement: false,
  // Emulated on a busy host; on an idle one, six.
  startSeconds: 120,
  programs: [
    ['qemu-system-x86_64', 'qemu-system-x86'],
    ['qemu-img', 'qemu-utils'],
    ['nft', 'nftables'],
    ['ip', 'iproute2'],
    ['unshare', 'util-linux'],
    ['nsenter', 'util-linux'],
    ['setpriv', 'util-linux'],
    ['perl', 'perl-base'],
  ],
  check: async settings => (await import('./check-host.js')).checkHost(ownSettings.parse(settings)),
  open: async ({ stateDirectory, settings, instance, fabric, networkMtu, portFilters, log }) => {
    const { QemuDriver } = await import('./driver.js')
    const { chooseAcceleration } = await import('./acceleration.js')
    const { findMachineImage } = await import('./image.js')
    const { DEFAULT_IMAGE_TAG } = await import('../images/tags.js')
    const { hostMemory, memoryForMachines } = await import('./memory.js')
    const { first_account: first, accounts: count, machines_memory, acceleration } = ownSettings.parse(settings)
    return new QemuDriver({
      instance,
      fabric,
      networkMtu,
      portFilters,
      log,
      directory: join(stateDirectory, 'machines'),
      findImage: (tag = DEFAULT_IMAGE_TAG) => findMachineImage(stateDirectory, tag),
      acceleration: () => chooseAcceleration(acceleration),
      size: sizeOf(settings),
      availableMemory: () => memoryForMachines(machines_memory, hostMemory()),
      accounts: { first, count },
    })
  },
}

function sizeOf(settings: ComputeGroup): { memoryMiB: number; cores: number } {
  const { machine_memory: memoryMiB, machine_cores: cores } = ownSettings.parse(settings)
  return { memoryMiB, cores }
}
