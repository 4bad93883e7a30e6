import { canonical } from '../network/address.js'
import type { Desired, HaproxyPart, Server } from '../protocol/desired.js'
import { type Leaving, serverPath } from './leaving.js'
import type { HaproxyObservation } from './runtime/client.js'
import { inMaintenance, isDrainedByHand, type ServerState } from './runtime/servers-state.js'

/** How HAProxy's running state differs from the desired one, and the repair. */
export type HaproxyRepair = {
  /** The differences as sentences; empty if there are none. */
  found: string[]
  /** Commands for the runtime socket. */
  commands: string[]
  /** Whether a difference needs a reload. */
  reload: boolean
}

/** One difference, and the command that repairs it; null if only a reload does. */
type Difference = { text: string; command: string | null }

/**
 * Compares HAProxy, its servers and frontends as observed with the desired state. A server that is no longer
 * desired and is out of service only finishes its connections: that is not a difference. Pure.
 */
export function planRepair(desired: Desired & { haproxy: HaproxyPart }, observed: HaproxyObservation): HaproxyRepair {
  const all = [
    ...serversDiffer(desired.haproxy, observed),
    ...unexpectedServers(desired.haproxy, observed),
    ...frontendsDiffer(desired, observed),
    ...globalLimitDiffers(desired.haproxy, observed),
  ]
  return {
    found: all.map(({ text }) => text),
    commands: all.flatMap(({ command }) => command ?? []),
    reload: all.some(({ command }) => command === null),
  }
}

function serversDiffer({ backends }: HaproxyPart, { servers, serverLimits }: HaproxyObservation): Difference[] {
  const states = new Map(servers.map(state => [`${state.backend}/${state.name}`, state]))
  return backends.flatMap(backend =>
    backend.servers.flatMap(server => {
      const path = `${backend.name}/${server.name}`
      const connections = serverLimits === null ? null : (serverLimits.get(path) ?? 0)
      return serverDiffers(server, path, states.get(path), connections)
    }),
  )
}

/** @param connections its connection limit; 0 is no limit, null is unknown */
function serverDiffers(
  server: Server,
  path: string,
  state: ServerState | undefined,
  connections: number | null,
): Difference[] {
  // The whole path would not fit into a line of the history.
  const who = `server ${server.name}`
  if (state === undefined) return [{ text: `${who} was missing`, command: null }]
  const found: Difference[] = []
  if (state.weight !== server.weight) {
    const command = `set server ${path} weight ${server.weight}`
    found.push({ text: `${who} had weight ${state.weight}`, command })
  }
  if (inMaintenance(state) !== server.disabled || (!server.disabled && isDrainedByHand(state))) {
    const command = `set server ${path} state ${server.disabled ? 'maint' : 'ready'}`
    found.push({ text: `${who} was ${server.disabled ? 'enabled' : 'out of service'}`, command })
  }
  for (const check of state.checksOff) {
    found.push({ text: `${who} was not checked`, command: `enable ${check} ${path}` })
  }
  if (connections !== null && connections !== limitOf(server)) {
    const command = `set maxconn server ${path} ${limitOf(server)}`
    found.push({ text: `${who} had connection limit ${connections}`, command })
  }
  const difference = found.length > 0 ? null : describeDifference(server, state)
  return difference === null ? found : [{ text: `${who} ${difference}`, command: null }]
}

function unexpectedServers({ backends }: HaproxyPart, { servers }: HaproxyObservation): Difference[] {
  const ours = new Map(backends.map(backend => [backend.name, new Set(backend.servers.map(({ name }) => name))]))
  return servers
    .filter(state => ours.get(state.backend)?.has(state.name) === false && !inMaintenance(state))
    .map(({ name }) => ({ text: `server ${name} was unexpected`, command: null }))
}

function frontendsDiffer(
  { haproxy, objects, datagrams }: Desired & { haproxy: HaproxyPart },
  { proxies }: HaproxyObservation,
): Difference[] {
  const byKernel = new Set(datagrams?.listeners.map(({ id }) => id))
  const frontends = new Map(proxies.filter(({ kind }) => kind === 'frontend').map(row => [row.name, row]))
  const disabled = objects.listeners.flatMap((name): Difference[] => {
    if (byKernel.has(name)) return []
    const status = frontends.get(name)?.status
    if (status === 'OPEN' || status === 'FULL') return []
    const text = `listener ${name} was ${status === undefined ? 'missing' : 'disabled'}`
    return [{ text, command: status === 'PAUSED' ? `enable frontend ${name}` : null }]
  })
  const limited = haproxy.frontends.flatMap(({ name, maxconn }): Difference[] => {
    const now = frontends.get(name)?.limit ?? maxconn
    if (now === maxconn) return []
    const command = `set maxconn frontend ${name} ${maxconn}`
    return [{ text: `listener ${name} had connection limit ${now}`, command }]
  })
  return [...disabled, ...limited]
}

function globalLimitDiffers({ text }: HaproxyPart, { limit }: HaproxyObservation): Difference[] {
  const desired = globalLimit(text)
  if (desired === null || limit === null || limit === desired) return []
  return [{ text: `HAProxy had connection limit ${limit}`, command: `set maxconn global ${desired}` }]
}

/** A server's connection limit; 0 is no limit. */
const limitOf = ({ options }: Server): number => Number(options[options.indexOf('maxconn') + 1 || options.length] ?? 0)

/** The `maxconn` of the section `global`, which comes first; null if it has none. */
function globalLimit(text: string): number | null {
  const global = text.slice(0, text.search(/^defaults/m))
  const [, limit] = /^ +maxconn (\d+)$/m.exec(global) ?? []
  return limit === undefined ? null : Number(limit)
}

/**
 * How HAProxy's servers differ from the desired ones, as sentences; empty if they agree. Ignores backends that the
 * desired part does not list, and leaving servers that are out of service.
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
      const difference = state === undefined ? 'is missing' : describeDifference(server, state)
      if (difference !== null) found.push(`server ${path} ${difference}`)
    }
  }
  const leavingPaths = new Set(leaving.map(serverPath))
  for (const [path, state] of byPath) {
    if (!ours.has(state.backend)) continue
    if (!leavingPaths.has(path)) found.push(`server ${path} is unexpected`)
    else if (!inMaintenance(state)) found.push(`server ${path} is leaving but still in service`)
  }
  return found
}

function describeDifference(server: Server, state: ServerState): string | null {
  if (state.number !== server.number) return `has number ${state.number}`
  if (canonical(state.address) !== canonical(server.address)) return `has address ${state.address}`
  if (state.port !== server.port) return `has port ${state.port}`
  if (state.weight !== server.weight) return `has weight ${state.weight}`
  if (inMaintenance(state) !== server.disabled) return server.disabled ? 'is not disabled' : 'is disabled'
  return null
}
