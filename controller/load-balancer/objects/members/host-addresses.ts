import { setTimeout as wait } from 'node:timers/promises'
import { ApiError } from '../../../http/errors.js'
import { computeOnThread } from '../../../process/compute-thread.js'

/** This machine's addresses, and whether each is that on the public network. */
export type HostAddresses = ReadonlyMap<string, { isPublicLeg: boolean }>

/** How the interface is named that this machine has on the public network of an installation. */
const PUBLIC_LEG = /^kr[0-9a-f]+-pub$/

/** A batch asks for each of its members. */
const FRESH_MS = 1000
/** What is older is not used. */
const MOST_AGE_MS = 60_000
/** As a rule the kernel tells at once. */
const PATIENCE_MS = 200
/** As long as the host's other commands have. */
const LIMIT_MS = 10_000

let known: { addresses: HostAddresses; at: number } = { addresses: new Map(), at: Number.NEGATIVE_INFINITY }
let reading: Promise<HostAddresses> | null = null

/**
 * As they were within the last second. When the kernel takes its time to tell, whoever asks gets those of before, which are a minute old at most, or waits.
 * @throws ApiError 503 when the kernel has not told for 10 s
 */
export async function hostAddresses(): Promise<HostAddresses> {
  const age = performance.now() - known.at
  if (age < FRESH_MS) return known.addresses
  reading ??= read().finally(() => {
    reading = null
  })
  const isOld = age > MOST_AGE_MS
  const told = await Promise.race([reading, wait(isOld ? LIMIT_MS : PATIENCE_MS, null, { ref: false })])
  if (told !== null) return told
  if (!isOld) return known.addresses
  throw new ApiError(503, 'The addresses of this host could not be read in time; try again in a moment.')
}

async function read(): Promise<HostAddresses> {
  const at = performance.now()
  const interfaces = await computeOnThread({ kind: 'network interfaces' })
  const addresses = new Map(
    Object.entries(interfaces).flatMap(([name, own = []]) =>
      own.map(({ address }) => [address, { isPublicLeg: PUBLIC_LEG.test(name) }] as const),
    ),
  )
  known = { addresses, at }
  return addresses
}
