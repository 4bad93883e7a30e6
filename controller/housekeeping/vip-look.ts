import type { LookAround } from '../compute/host-agents.js'
import type { Database } from '../database/connection.js'
import { vipsOn } from '../hosts/move.js'
import type { Logger } from '../log/log.js'

/** How long an answer counts. Each look takes a place on the subnet and some seconds. */
const ANSWER_MS = 20_000

/** One that answers is enough. */
const MAX_VIPS = 4

/**
 * Looks from this host whether VIPs of another controller host answer: then its amphorae serve, whatever else is silent.
 * @returns asks for one host; false also if this host is not on the networks of the VIPs
 */
export function createVipLook(
  { database, lookAround, log }: { database: Database; lookAround: LookAround; log: Logger },
  now = () => performance.now(),
): (hostId: string) => Promise<boolean> {
  const answered = new Map<string, number>()
  return async hostId => {
    if (lookAround === null) return false
    const last = answered.get(hostId)
    if (last !== undefined && now() - last < ANSWER_MS) return true
    const vips = await vipsOn(database, hostId, MAX_VIPS)
    // Such as a subnet without a free address to look from.
    const looks = vips.map(({ subnetId, addresses }) => lookAround(subnetId, addresses).catch(() => []))
    const answering = (await Promise.all(looks)).flat()
    if (answering.length === 0) return false
    answered.set(hostId, now())
    log.warn({ host: hostId, vips: answering }, 'a controller host and its amphorae are silent, but its VIPs answer')
    return true
  }
}
