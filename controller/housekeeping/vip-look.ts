import type { LookAround } from '../compute/host-agents.js'
import type { Database } from '../database/connection.js'
import { vipsOn } from '../hosts/move.js'
import type { Logger } from '../log/log.js'
import type { Answer } from '../network/driver.js'

/** How long the result of a look counts that keeps a host from being gone. Each look takes a place on the subnet and some seconds. */
const KEPT_MS = 20_000

/** One that answers is enough. */
const MAX_VIPS = 4

/**
 * Looks from this host whether VIPs of another controller host answer: then its amphorae serve, whatever else is silent.
 * @returns asks for one host. `silent` also if this host is not on the networks of the VIPs: others may be, but nobody
 * here can tell. `unknown` if none answers and a look has failed.
 */
export function createVipLook(
  { database, lookAround, log }: { database: Database; lookAround: LookAround; log: Logger },
  now = () => performance.now(),
): (hostId: string) => Promise<Answer> {
  const kept = new Map<string, { answer: Answer; at: number }>()

  async function look(hostId: string, around: NonNullable<LookAround>): Promise<Answer> {
    const vips = await vipsOn(database, hostId, MAX_VIPS)
    const looks = vips.map(({ subnetId, addresses }) =>
      around(subnetId, addresses).catch((error: unknown) => {
        // Such as a subnet without a free address to look from.
        log.warn({ host: hostId, subnet: subnetId, err: error }, 'looking for VIPs of a silent controller host failed')
        return new Map(addresses.map(address => [address, 'unknown' as const]))
      }),
    )
    const answers = (await Promise.all(looks)).flatMap(each => [...(each ?? [])])
    const saying = (wanted: Answer) => answers.filter(([, answer]) => answer === wanted).map(([address]) => address)
    const [answering, unknown] = [saying('answers'), saying('unknown')]
    if (answering.length > 0) {
      log.warn({ host: hostId, vips: answering }, 'a controller host and its amphorae are silent, but its VIPs answer')
      return 'answers'
    }
    if (unknown.length === 0) return 'silent'
    log.warn(
      { host: hostId, vips: unknown },
      'a controller host and its amphorae are silent, but whether its VIPs answer cannot be told: it is not held to be gone',
    )
    return 'unknown'
  }

  return async hostId => {
    if (lookAround === null) return 'silent'
    const last = kept.get(hostId)
    if (last !== undefined && now() - last.at < KEPT_MS) return last.answer
    const answer = await look(hostId, lookAround)
    if (answer === 'silent') kept.delete(hostId)
    else kept.set(hostId, { answer, at: now() })
    return answer
  }
}
