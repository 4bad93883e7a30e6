import { PingFailure } from './ping.js'

/** Concurrent pings. Each is a process, and nothing else limits the number of processes of an amphora. */
const MAX_CONCURRENT = 256

type Ping = (address: string, timeoutSeconds: number) => Promise<boolean>

/**
 * Shares one echo request among concurrent queries for an address: several backends may have the same member.
 * @returns a `ping` that also rejects with PingFailure if too many pings are in progress, as when very many members
 * are down
 */
export function sharePings(ping: Ping): Ping {
  const inProgress = new Map<string, Promise<boolean>>()
  return async (address, timeoutSeconds) => {
    const key = `${address} ${timeoutSeconds}`
    const present = inProgress.get(key)
    if (present !== undefined) return present
    if (inProgress.size >= MAX_CONCURRENT) throw new PingFailure(`more than ${MAX_CONCURRENT} pings in progress`)
    const asked = ping(address, timeoutSeconds).finally(() => inProgress.delete(key))
    inProgress.set(key, asked)
    return asked
  }
}
