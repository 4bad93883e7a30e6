import { setTimeout as wait } from 'node:timers/promises'
import { ApiError } from '../../../http/errors.js'
import { computeOnThread } from '../../../process/compute-thread.js'

/** Addresses of this host, and whether each belongs to its interface on the public network. */
export type HostAddresses = ReadonlyMap<string, { isPublic: boolean }>

/** Name of the host's interface on the public network of an installation. */
const PUBLIC_INTERFACE = /^kr[0-9a-f]+-pub$/

/** A result is reused for this time, because every request with members needs it. */
const FRESH_MS = 1000
/** Older results are not used. */
const MAX_AGE_MS = 60_000
/** How long to wait before using an older result; the kernel usually answers at once. */
const PREFERRED_WAIT_MS = 200
/** Same limit as for other commands on the host. */
const MAX_WAIT_MS = 10_000

let latest: { addresses: HostAddresses; at: number } = { addresses: new Map(), at: Number.NEGATIVE_INFINITY }
let reading: Promise<HostAddresses> | null = null

/**
 * The addresses, at most a second old. If the kernel is slow, returns an earlier result of at most a minute, or
 * waits.
 * @throws ApiError 503 when the kernel does not answer within 10 s
 */
export async function hostAddresses(): Promise<HostAddresses> {
  const age = performance.now() - latest.at
  if (age < FRESH_MS) return latest.addresses
  reading ??= read().finally(() => {
    reading = null
  })
  const isOld = age > MAX_AGE_MS
  const addresses = await Promise.race([reading, wait(isOld ? MAX_WAIT_MS : PREFERRED_WAIT_MS, null, { ref: false })])
  if (addresses !== null) return addresses
  if (!isOld) return latest.addresses
  throw new ApiError(503, 'Member addresses cannot be checked at the moment. Try again later.')
}

async function read(): Promise<HostAddresses> {
  const at = performance.now()
  const interfaces = await computeOnThread({ kind: 'network interfaces' })
  const addresses = new Map(
    Object.entries(interfaces).flatMap(([name, own = []]) =>
      own.map(({ address }) => [address, { isPublic: PUBLIC_INTERFACE.test(name) }] as const),
    ),
  )
  latest = { addresses, at }
  return addresses
}
