import type { NetworkDriverKind } from './kind.js'

const local: NetworkDriverKind = {
  name: 'local',
  onHost: true,
  programs: [
    ['nft', 'nftables'],
    ['conntrack', 'conntrack'],
    ['ip', 'iproute2'],
    ['sysctl', 'procps'],
    ['unshare', 'util-linux'],
    ['nsenter', 'util-linux'],
    ['ping', 'iputils-ping'],
  ],
  open: async ({ database, sharedAddresses }) =>
    (await import('./local/driver.js')).createLocalDriver(database, sharedAddresses),
}

const noop: NetworkDriverKind = {
  name: 'noop',
  onHost: false,
  programs: [],
  open: async () => (await import('./noop/driver.js')).createNoopNetworkDriver(),
}

/** Every network driver. The first is the default. A driver's code loads when it is opened. */
export const networkDrivers: readonly [NetworkDriverKind, ...NetworkDriverKind[]] = [local, noop]

/** @throws Error for an unknown name */
export function networkDriver(name: string): NetworkDriverKind {
  const kind = networkDrivers.find(kind => kind.name === name)
  if (kind === undefined) throw new Error(`There is no network driver ${name}.`)
  return kind
}
