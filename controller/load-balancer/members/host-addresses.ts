import { computeAside } from '../../process/aside.js'

/** This machine's addresses, and whether each is that on the public network. */
export type HostAddresses = ReadonlyMap<string, { isPublicLeg: boolean }>

/** How the card is named that this machine has on the public network of an installation. */
const PUBLIC_LEG = /^kr[0-9a-f]+-pub$/

/** A batch asks for each of its members. */
const FRESH_MS = 1000
/** What is older is not used. */
const MOST_AGE_MS = 60_000

let known: { addresses: HostAddresses; at: number } = { addresses: new Map(), at: Number.NEGATIVE_INFINITY }
let reading: Promise<HostAddresses> | null = null

/**
 * As a rule as they were within the last second. The kernel may take its time to tell: whoever asks then gets those of before, which are a minute old at
 * most.
 */
export async function hostAddresses(): Promise<HostAddresses> {
  const age = performance.now() - known.at
  if (age < FRESH_MS) return known.addresses
  reading ??= read().finally(() => {
    reading = null
  })
  if (age > MOST_AGE_MS) return reading
  reading.catch(() => undefined)
  return known.addresses
}

async function read(): Promise<HostAddresses> {
  const at = performance.now()
  const interfaces = await computeAside({ kind: 'network interfaces' })
  const addresses = new Map(
    Object.entries(interfaces).flatMap(([name, own = []]) =>
      own.map(({ address }) => [address, { isPublicLeg: PUBLIC_LEG.test(name) }] as const),
    ),
  )
  known = { addresses, at }
  return addresses
}
