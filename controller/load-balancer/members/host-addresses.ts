import { networkInterfaces } from 'node:os'

/** This machine's addresses, and whether each is that on the public network. */
export type HostAddresses = ReadonlyMap<string, { isPublicLeg: boolean }>

/** How the card is named that this machine has on the public network of an installation. */
const PUBLIC_LEG = /^kr[0-9a-f]+-pub$/

/** A batch asks for each of its members. */
const FRESH_MS = 1000

let known: HostAddresses = new Map()
let readAt = Number.NEGATIVE_INFINITY

/** As they were within the last second. */
export function hostAddresses(): HostAddresses {
  const now = performance.now()
  if (now - readAt < FRESH_MS) return known
  readAt = now
  known = new Map(
    Object.entries(networkInterfaces()).flatMap(([name, addresses = []]) =>
      addresses.map(({ address }) => [address, { isPublicLeg: PUBLIC_LEG.test(name) }] as const),
    ),
  )
  return known
}
