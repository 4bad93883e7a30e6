import type { HaproxyPart, Server } from '../protocol/desired.js'
import { isChecked, memberKey } from './known-down.js'
import { parseServersState, type ServerState } from './runtime/servers-state.js'

/** What HAProxy runs now: its part of the desired state (null if unknown), and the output of `show servers state`. */
export type RunningHaproxy = { applied: HaproxyPart | null; dump: string }

/** Maintenance from the configuration. If this bit is set alone, a command has overridden it. */
const ADMIN_FROM_CONFIGURATION = 0x04

/**
 * The server-state file for a new worker. Servers whose configuration does not change keep their whole state,
 * unless they are in maintenance, which a line would restore. Of the others, checked servers that are known to be
 * down start down.
 * @param present null if HAProxy starts
 * @param down keys of members, see memberKey
 */
export function serverStateFile(
  present: RunningHaproxy | null,
  desired: HaproxyPart,
  down: ReadonlySet<string>,
): string {
  const before = new Map<string, Server>(
    (present?.applied?.backends ?? []).flatMap(backend =>
      backend.servers.map(server => [`${backend.name}/${server.name}`, server] as const),
    ),
  )
  const states = new Map<string, ServerState>(
    parseServersState(present?.dump ?? '').map(state => [`${state.backend}/${state.name}`, state]),
  )
  const lines = desired.backends.flatMap(({ name, servers }) =>
    servers
      .filter(server => !server.disabled)
      .flatMap(server => {
        const path = `${name}/${server.name}`
        const state = states.get(path)
        const isSame = JSON.stringify(before.get(path)) === JSON.stringify(server)
        if (isSame && state !== undefined && (state.admin & ~ADMIN_FROM_CONFIGURATION) === 0) {
          return [state.words.with(6, '0').join(' ')]
        }
        return isChecked(server) && down.has(memberKey(name, server.address, server.port))
          ? [downLine(name, server)]
          : []
      }),
  )
  return ['1', ...lines, ''].join('\n')
}

/** The line of a server stopped by its health check; the columns are those of `show servers state`. */
const downLine = (backend: string, { name, number, address, port, weight }: Server): string =>
  `0 ${backend} ${number} ${name} ${address} 0 0 ${weight} ${weight} 0 8 2 0 6 0 0 1 - ${port} - 0 0 - - 0`
