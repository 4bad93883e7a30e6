import { networkInterfaces } from 'node:os'
import type { Desired } from '../protocol/desired.js'
import { canonical } from './address.js'

/** A single amphora holds what it is told to; of a pair that is keepalived's affair. */
export function holdsVip({ interfaces, keepalived }: Pick<Desired, 'interfaces' | 'keepalived'>): boolean {
  const vips = interfaces.flatMap(card => card.vips)
  if (keepalived === null) return vips.length > 0
  const held = new Set(Object.values(networkInterfaces()).flatMap(list => (list ?? []).map(({ address }) => address)))
  return vips.some(({ address }) => held.has(canonical(address)))
}
