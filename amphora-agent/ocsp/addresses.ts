import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * What no request for a certificate's status ever contacts: this machine, its links, nobody in particular, and IPv4
 * addresses in IPv6 ones. The routing rules of the machine keep HAProxy's account from the management network.
 */
const FORBIDDEN: ReadonlySet<string> = new Set([
  'unspecified',
  'broadcast',
  'multicast',
  'loopback',
  'linkLocal',
  'ipv4Mapped',
  '6to4',
  'teredo',
  'rfc6145',
  'rfc6052',
])

/** Whether a responder or a name server may have this address. Pure. */
export const mayContact = (address: string): boolean =>
  isIP(address) !== 0 && !address.includes('%') && !FORBIDDEN.has(ipaddr.parse(address).range())
