import { readFileSync } from 'node:fs'
import { nft } from './nft-command.js'

const hex = (networkId: string): string => networkId.replaceAll('-', '').toLowerCase()

/** The host's end of a network's uplink. Unique to the instance; at most 15 characters. */
export const uplinkHostEnd = (instance: string, networkId: string): string =>
  `kr${instance}-${hex(networkId).slice(0, 6)}`

/** The fabric's end of a network's uplink, a port of the network's bridge. */
export const uplinkFabricEnd = (networkId: string): string => `u${hex(networkId).slice(0, 11)}`

/** The nftables table of the host that passes frames between the interface and the uplink. */
export const framesTable = (hostEnd: string): string => `netdev ${hostEnd.replaceAll('-', '_')}`

/** Sets in that table: the MAC addresses of the network's ports, and what this table made promiscuous. */
export const FRAMES_SETS = `
  set ours { type ether_addr; }
  set made_promiscuous { type iface_index; }
`

/**
 * Lets frames for a port come in from its network's interface, and keeps the port's own from coming back. Call it before
 * the port can send. Does nothing on a network without an uplink that needs it.
 * @throws IpCommandError with nft's error output
 */
export async function admitFrames(instance: string, networkId: string, macAddress: string): Promise<void> {
  const hostEnd = uplinkHostEnd(instance, networkId)
  if (!interfaceExists(hostEnd)) return
  const table = framesTable(hostEnd)
  // The table may be missing for a moment, while the uplink is made.
  await nft(null, `table ${table} {${FRAMES_SETS}}\nadd element ${table} ours { ${macAddress} }\n`)
}

/** Whether the host has an interface of this name. A look at a file: every attach asks. */
const interfaceExists = (name: string): boolean =>
  readFileSync('/proc/net/dev', 'utf8')
    .split('\n')
    .some(line => line.trimStart().startsWith(`${name}:`))
