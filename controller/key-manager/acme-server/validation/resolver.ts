import { Resolver } from 'node:dns/promises'

/** A name could not be looked up. */
export class LookUpFailed extends Error {}

export type NameResolver = {
  /** All addresses of a name; empty if it has none or does not exist. @throws LookUpFailed */
  addresses: (name: string, signal: AbortSignal) => Promise<string[]>
  /** Its TXT records, each as one text. @throws LookUpFailed */
  texts: (name: string, signal: AbortSignal) => Promise<string[]>
}

const TIMEOUT_MS = 3000
const TRIES = 2
/** Nobody with a good reason has more. */
const MAX_RECORDS = 100

/** Answers that say that there is nothing. */
const NOTHING: readonly unknown[] = ['ENODATA', 'ENOTFOUND']

/**
 * Asks DNS servers only: the host's own files name nothing that a tenant may reach.
 * @param servers empty for those of the system
 */
export function createResolver(servers: readonly string[]): NameResolver {
  const ask = async <Found>(
    query: (resolver: Resolver) => Promise<Found[]>,
    name: string,
    signal: AbortSignal,
  ): Promise<Found[]> => {
    // One for each query: a resolver keeps its sockets open as long as it is asked.
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES })
    if (servers.length > 0) resolver.setServers(servers)
    const cancel = () => resolver.cancel()
    signal.addEventListener('abort', cancel)
    try {
      return (await query(resolver)).slice(0, MAX_RECORDS)
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? error.code : undefined
      if (NOTHING.includes(code)) return []
      throw new LookUpFailed(`The look-up of ${name} failed (${String(code ?? error)}).`)
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }
  return {
    addresses: async (name, signal) => {
      const answers = await Promise.allSettled([
        ask(resolver => resolver.resolve4(name), name, signal),
        ask(resolver => resolver.resolve6(name), name, signal),
      ])
      const found = answers.flatMap(answer => (answer.status === 'fulfilled' ? answer.value : []))
      const failure = answers.find(answer => answer.status === 'rejected')
      if (found.length === 0 && failure !== undefined) throw failure.reason
      return found
    },
    texts: async (name, signal) => {
      const records = await ask(resolver => resolver.resolveTxt(name), name, signal)
      return records.map(parts => parts.join(''))
    },
  }
}
