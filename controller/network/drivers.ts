import type { NetworkDriverKind } from './kind.js'

/** For the fabric, and the host's interfaces on it. */
const HOST_PROGRAMS: NetworkDriverKind['programs'] = [
  ['nft', 'nftables'],
  ['conntrack', 'conntrack'],
  ['ip', 'iproute2'],
  ['sysctl', 'procps'],
  ['unshare', 'util-linux'],
  ['nsenter', 'util-linux'],
  ['ping', 'iputils-ping'],
]

/** Networks in Krater's own tables. What the drivers differ in is who carries them out. */
const openTables: NetworkDriverKind['open'] = async ({ database, sharedAddresses }) =>
  (await import('./local/driver.js')).createLocalDriver(database, sharedAddresses)

const local: NetworkDriverKind = {
  name: 'local',
  onHost: true,
  switching: 'bridges',
  programs: HOST_PROGRAMS,
  open: openTables,
}

const ovn: NetworkDriverKind = {
  name: 'ovn',
  onHost: true,
  switching: 'ovn',
  programs: [
    ...HOST_PROGRAMS,
    ['ovs-vswitchd', 'openvswitch-switch'],
    ['ovsdb-server', 'openvswitch-common'],
    ['ethtool', 'ethtool'],
    ['ovn-controller', 'ovn-host'],
    ['ovn-northd', 'ovn-central'],
  ],
  open: openTables,
}

const noop: NetworkDriverKind = {
  name: 'noop',
  onHost: false,
  switching: 'bridges',
  programs: [],
  open: async () => (await import('./noop/driver.js')).createNoopNetworkDriver(),
}

/** Every network driver. The first is the default. A driver's code loads when it is opened. */
export const networkDrivers: readonly [NetworkDriverKind, ...NetworkDriverKind[]] = [local, ovn, noop]

/** @throws Error for an unknown name */
export function networkDriver(name: string): NetworkDriverKind {
  const kind = networkDrivers.find(kind => kind.name === name)
  if (kind === undefined) throw new Error(`There is no network driver ${name}.`)
  return kind
}
