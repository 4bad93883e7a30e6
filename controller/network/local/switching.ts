import type { Link } from './ip-command.js'
import { bridgeOf } from './names.js'

/** The fabric's end of an interface, and what it is called where it is connected: a port's ID, or a host leg's name. */
export type FabricEnd = { name: string; networkId: string; connectedAs: string }

/** What connects the interfaces of the fabric to each other. All throw an Error if the result is not as desired. */
export type Switching = {
  /** Whether the ends are in the host's own network namespace. */
  isOnHost: boolean
  /** Whether the kernel's bridges and rules do it, and so filter what ports send and get. */
  usesBridges: boolean
  /** Whether it passes checksums on as they come: machines may then leave none to their interfaces. */
  needsChecksums: () => Promise<boolean>
  /** Lines for `ip -batch` in the fabric, before an interface on this network is made. */
  networkLines: (networkId: string, mtu: number) => string[]
  /** Words of `ip link` for an interface on this network. */
  linkWords: (networkId: string) => string
  /** Whether an end, which is there, is connected to its network. */
  isConnected: (link: Link, end: FabricEnd) => Promise<boolean>
  /** Connects an end that is there. Safe to repeat. */
  connect: (end: FabricEnd) => Promise<void>
  /** Makes an interface of the host's, if the switching is there. Safe to repeat. */
  connectHost: (end: FabricEnd, leg: { macAddress: string; mtu: number }) => Promise<void>
  /** No error for one that is not connected. */
  disconnect: (name: string) => Promise<void>
  /** Names of ends that it connects, or would if they were there; none for bridges, which forget what is gone. */
  ends: () => Promise<string[]>
  /** Of these ends, those that are connected to any network. */
  connected: (links: readonly Link[]) => Promise<Link[]>
}

/** A bridge of the kernel for each network. */
export const bridges: Switching = {
  isOnHost: false,
  usesBridges: true,
  needsChecksums: async () => false,
  networkLines: (networkId, mtu) => [
    `link add name ${bridgeOf(networkId)} type bridge forward_delay 0 stp_state 0 mcast_snooping 0`,
    `link set dev ${bridgeOf(networkId)} addrgenmode none mtu ${mtu} up`,
  ],
  linkWords: networkId => `master ${bridgeOf(networkId)}`,
  isConnected: async (link, { networkId }) => link.master === bridgeOf(networkId),
  connect: async () => undefined,
  connectHost: async () => undefined,
  disconnect: async () => undefined,
  ends: async () => [],
  connected: async links => links.filter(({ master }) => master !== undefined),
}
