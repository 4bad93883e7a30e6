import { canonical } from '../network/address.js'
import type { Desired, HaproxyPart, Server } from '../protocol/desired.js'
import { type Leaving, pathOf } from './leaving.js'
import type { HaproxyLook } from './runtime/client.js'
import { inMaintenance, isDrainedByHand, type ServerState } from './runtime/servers-state.js'

/** How what HAProxy runs differs from what it should, and what puts it right. */
export type HaproxyRepair = {
  /** As sentences; none when all is as it should be. */
  found: string[]
  /** For the runtime socket. */
  commands: string[]
  /** Some of it needs a reload. */
  reload: boolean
}

/**
 * Compares what HAProxy says of itself, its servers and frontends with the desired state. A server that is no longer desired and is out of service
 * only ends its connections: that is no difference. Pure.
 */
export function planRepair(
  { haproxy, objects }: Desired & { haproxy: HaproxyPart },
  { limit, proxies, servers, serverLimits }: HaproxyLook,
): HaproxyRepair {
  const repair: HaproxyRepair = { found: [], commands: [], reload: false }
  const byPath = new Map<string, ServerState>(servers.map(state => [`${state.backend}/${state.name}`, state]))
  for (const backend of haproxy.backends) {
    for (const server of backend.servers) {
      const path = `${backend.name}/${server.name}`
      // Its whole path would not fit into the history.
      const who = `server ${server.name}`
      const state = byPath.get(path)
      byPath.delete(path)
      if (state === undefined) {
        repair.found.push(`${who} was missing`)
        repair.reload = true
        continue
      }
      const found = repair.found.length
      if (state.weight !== server.weight) {
        repair.found.push(`${who} had weight ${state.weight}`)
        repair.commands.push(`set server ${path} weight ${server.weight}`)
      }
      if (inMaintenance(state) !== server.disabled || (!server.disabled && isDrainedByHand(state))) {
        repair.found.push(`${who} was ${server.disabled ? 'enabled' : 'out of service'}`)
        repair.commands.push(`set server ${path} state ${server.disabled ? 'maint' : 'ready'}`)
      }
      for (const check of state.checksOff) {
        repair.found.push(`${who} was not checked`)
        repair.commands.push(`enable ${check} ${path}`)
      }
      const connections = serverLimits?.get(path) ?? 0
      if (serverLimits !== null && connections !== limitOf(server)) {
        repair.found.push(`${who} had a limit of ${connections} connections`)
        repair.commands.push(`set maxconn server ${path} ${limitOf(server)}`)
      }
      const difference = repair.found.length > found ? null : differenceOf(server, state)
      if (difference === null) continue
      repair.found.push(`${who} ${difference}`)
      repair.reload = true
    }
  }
  const ours = new Set(haproxy.backends.map(({ name }) => name))
  for (const state of byPath.values()) {
    if (!ours.has(state.backend) || inMaintenance(state)) continue
    repair.found.push(`server ${state.name} was unexpected`)
    repair.reload = true
  }
  const frontends = new Map(proxies.filter(({ kind }) => kind === 'frontend').map(row => [row.name, row]))
  for (const name of objects.listeners) {
    const status = frontends.get(name)?.status
    if (status === 'OPEN' || status === 'FULL') continue
    repair.found.push(`listener ${name} was ${status === undefined ? 'missing' : 'disabled'}`)
    if (status === 'PAUSED') repair.commands.push(`enable frontend ${name}`)
    else repair.reload = true
  }
  for (const { name, maxconn } of haproxy.frontends) {
    const now = frontends.get(name)?.limit ?? maxconn
    if (now === maxconn) continue
    repair.found.push(`listener ${name} had a limit of ${now} connections`)
    repair.commands.push(`set maxconn frontend ${name} ${maxconn}`)
  }
  const globalMaxconn = globalLimit(haproxy.text)
  if (globalMaxconn !== null && limit !== null && limit !== globalMaxconn) {
    repair.found.push(`HAProxy had a limit of ${limit} connections`)
    repair.commands.push(`set maxconn global ${globalMaxconn}`)
  }
  return repair
}

/** Of a server's connections; 0 is none. */
const limitOf = ({ options }: Server): number => Number(options[options.indexOf('maxconn') + 1 || options.length] ?? 0)

/** As the section `global` says, which comes first; null when it says nothing. */
function globalLimit(text: string): number | null {
  const global = text.slice(0, text.search(/^defaults/m))
  const [, limit] = /^ +maxconn (\d+)$/m.exec(global) ?? []
  return limit === undefined ? null : Number(limit)
}

/**
 * How the servers that HAProxy runs differ from the desired ones, as sentences; none when they agree. Backends that are not listed in the
 * desired part are left alone, and servers that leave stay until they are free.
 */
export function differences(
  desired: HaproxyPart,
  states: readonly ServerState[],
  leaving: readonly Leaving[] = [],
): string[] {
  const byPath = new Map<string, ServerState>(states.map(state => [`${state.backend}/${state.name}`, state]))
  const ours = new Set(desired.backends.map(backend => backend.name))
  const found: string[] = []
  for (const backend of desired.backends) {
    for (const server of backend.servers) {
      const path = `${backend.name}/${server.name}`
      const state = byPath.get(path)
      byPath.delete(path)
      const difference = state === undefined ? 'is missing' : differenceOf(server, state)
      if (difference !== null) found.push(`server ${path} ${difference}`)
    }
  }
  const parting = new Set(leaving.map(pathOf))
  for (const [path, state] of byPath) {
    if (!ours.has(state.backend)) continue
    if (!parting.has(path)) found.push(`server ${path} should not be there`)
    else if (!inMaintenance(state)) found.push(`server ${path} leaves and is not out of service`)
  }
  return found
}

function differenceOf(server: Server, state: ServerState): string | null {
  if (state.number !== server.number) return `has number ${state.number}`
  if (canonical(state.address) !== canonical(server.address)) return `has address ${state.address}`
  if (state.port !== server.port) return `has port ${state.port}`
  if (state.weight !== server.weight) return `has weight ${state.weight}`
  if (inMaintenance(state) !== server.disabled) return server.disabled ? 'is not disabled' : 'is disabled'
  return null
}
