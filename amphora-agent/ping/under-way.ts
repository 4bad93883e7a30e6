import { PingFailure } from './ping.js'

/** Each is a process of its own, and an amphora has no limit on processes but this. */
const MOST_AT_ONCE = 256

type Ping = (address: string, timeoutSeconds: number) => Promise<boolean>

/**
 * One echo request for all who ask about an address at the same time: several back ends may have the same member.
 * @returns the same as `ping`, but it rejects with PingFailure when too many are under way, as when very many members are silent
 */
export function pingTogether(ping: Ping): Ping {
  const underWay = new Map<string, Promise<boolean>>()
  return async (address, timeoutSeconds) => {
    const key = `${address} ${timeoutSeconds}`
    const present = underWay.get(key)
    if (present !== undefined) return present
    if (underWay.size >= MOST_AT_ONCE) throw new PingFailure(`more than ${MOST_AT_ONCE} do not answer at once`)
    const asked = ping(address, timeoutSeconds).finally(() => underWay.delete(key))
    underWay.set(key, asked)
    return asked
  }
}
