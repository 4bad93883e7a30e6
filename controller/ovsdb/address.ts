import { isIP } from 'node:net'

/** Where an OVSDB server listens. */
export type OvsdbAddress =
  | { kind: 'unix'; path: string }
  | { kind: 'tcp'; host: string; port: number }
  | { kind: 'ssl'; host: string; port: number }

/**
 * Reads addresses as OVN's own programs take them, such as `unix:/run/ovn/ovnnb_db.sock` or
 * `ssl:10.0.0.1:6641,ssl:[2001:db8::2]:6641`.
 * @returns null unless all of them are right
 */
export function parseOvsdbAddresses(text: string): OvsdbAddress[] | null {
  const addresses = text.split(',').map(part => parseAddress(part.trim()))
  return addresses.every(address => address !== null) ? addresses : null
}

/** @returns the address as `parseOvsdbAddresses` reads it */
export const formatOvsdbAddress = (address: OvsdbAddress): string =>
  address.kind === 'unix'
    ? `unix:${address.path}`
    : `${address.kind}:${isIP(address.host) === 6 ? `[${address.host}]` : address.host}:${address.port}`

function parseAddress(text: string): OvsdbAddress | null {
  const unix = /^unix:(\/.+)$/.exec(text)
  if (unix?.[1] !== undefined) return { kind: 'unix', path: unix[1] }
  const words = /^(tcp|ssl):(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9.-]+)):(\d{1,5})$/.exec(text)
  if (words === null) return null
  const [, kind, ipv6, name, digits] = words
  const port = Number(digits)
  if (port < 1 || port > 65_535 || (ipv6 !== undefined && isIP(ipv6) !== 6)) return null
  return { kind: kind === 'ssl' ? 'ssl' : 'tcp', host: ipv6 ?? name ?? '', port }
}
