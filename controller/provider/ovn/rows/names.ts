import { createHash } from 'node:crypto'
import type { Entrance } from './facts.js'

/** What `rowUuid` makes UUIDs of, for the rows of load balancers. */
export const WORDS = {
  listener: (id: string, version: 4 | 6) => ['listener', id, String(version)],
  healthCheck: (listenerId: string, vip: string) => ['health check', listenerId, vip],
  accessRule: (listenerId: string, address: string) => ['access rule', listenerId, address],
  entranceRule: (listenerId: string, address: string, { networkId, macAddress }: Entrance) => [
    ...['entrance rule', listenerId, address, networkId, macAddress],
  ],
  vipLeg: (loadBalancerId: string, networkId: string) => ['vip leg', loadBalancerId, networkId],
} as const

/** A MAC address that is always the same for the same thing: locally administered, unicast. */
export function macOf(instance: string, ...words: readonly string[]): string {
  const digest = createHash('sha256')
    .update(JSON.stringify(['krater mac', instance, ...words]))
    .digest('hex')
  return `06:${digest.slice(0, 10).replace(/(..)(?=.)/g, '$1:')}`
}

/** An address and a port as OVN writes them: IPv6 in brackets. */
export const endpoint = (address: string, port: number): string =>
  address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`

export const versionOf = (address: string): 4 | 6 => (address.includes(':') ? 6 : 4)
