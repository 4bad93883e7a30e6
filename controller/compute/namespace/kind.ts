import { join } from 'node:path'
import * as z from 'zod'
import { LOCAL_ZONE } from '../driver.js'
import type { Limits } from '../host/cgroup.js'
import type { ComputeDriverKind, ComputeGroup } from '../kind.js'
import { namespaceOptions } from './options.js'

const ownSettings = z.object(namespaceOptions)

/** Runs amphorae in namespaces of the controller's host. The driver's code is loaded on use. */
export const namespaceKind: ComputeDriverKind = {
  name: 'namespace',
  runsMachines: true,
  options: namespaceOptions,
  offers: { flavors: ['namespace'], zones: [LOCAL_ZONE] },
  size: settings => {
    const { amphora_memory: memoryMiB, amphora_processors: cores } = ownSettings.parse(settings)
    return { memoryMiB, cores }
  },
  images: 'optional',
  ownsManagement: false,
  startSeconds: 30,
  programs: [
    ['haproxy', 'haproxy'],
    ['keepalived', 'keepalived'],
    ['sshd', 'openssh-server'],
    ['ssh', 'openssh-client'],
    ['ssh-keygen', 'openssh-client'],
    ['nft', 'nftables'],
    ['conntrack', 'conntrack'],
    ['ip', 'iproute2'],
    ['ss', 'iproute2'],
    ['ping', 'iputils-ping'],
    ['sysctl', 'procps'],
    ['unshare', 'util-linux'],
    ['nsenter', 'util-linux'],
  ],
  check: async settings => (await import('./check-limits.js')).checkLimits(limitsOf(settings)),
  open: async ({ stateDirectory, settings, instance, ...rest }) => {
    const { NamespaceDriver } = await import('./driver.js')
    const { findRootImage } = await import('./root-image.js')
    const { first_account: first, accounts: count } = ownSettings.parse(settings)
    return new NamespaceDriver({
      ...rest,
      instance,
      directory: join(stateDirectory, 'amphorae'),
      findImage: tag => findRootImage(stateDirectory, tag),
      limits: limitsOf(settings),
      accounts: { first, count },
    })
  },
}

function limitsOf(settings: ComputeGroup): Limits {
  const { amphora_memory, amphora_processors, amphora_processes } = ownSettings.parse(settings)
  return { memoryBytes: amphora_memory * 1024 * 1024, processors: amphora_processors, processes: amphora_processes }
}
