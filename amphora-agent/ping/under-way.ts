import { PingFailure } from './ping.js'

/** Concurrent pings. Each is a process, and nothing else limits the number of processes of an amphora. */
const MOST_AT_ONCE = 256

type Ping = (address: string, timeoutSeconds: number) => Promise<boolean>

/**
 * Shares one echo request among concurrent queries for an address: several backends may have the same member.
 * @returns a `ping` that also rejects with PingFailure if too many pings are in progress, as when very many members
 * are down
 */
export function pingTogether(ping: Ping): Ping {
  const underWay = new Map<string, Promise<boolean>>()
  return async (address, timeoutSeconds) => {
    const key = `${address} ${timeoutSeconds}`
    const present = underWay.get(key)
    if (present !== undefined) return present
    if (underWay.size >= MOST_AT_ONCE) throw new PingFailure(`more than ${MOST_AT_ONCE} pings in progress`)
    const asked = ping(address, timeoutSeconds).finally(() => underWay.delete(key))
    underWay.set(key, asked)
    return asked
  }
}
