import type { Desired, HaproxyPart } from '../protocol/desired.js'
import { differenceOf, inMaintenance, isDrainedByHand, type ServerState } from './servers-state.js'
import type { ProxyRow } from './stat.js'

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
 * Compares what HAProxy says of its servers and frontends with the desired state. A server that is not wanted any more and is out of service
 * only ends its connections: that is no difference. Pure.
 */
export function planRepair(
  { haproxy, objects }: Desired & { haproxy: HaproxyPart },
  servers: readonly ServerState[],
  proxies: readonly ProxyRow[],
): HaproxyRepair {
  const repair: HaproxyRepair = { found: [], commands: [], reload: false }
  const byPath = new Map<string, ServerState>(servers.map(state => [`${state.backend}/${state.name}`, state]))
  for (const backend of haproxy.backends) {
    for (const server of backend.servers) {
      const path = `${backend.name}/${server.name}`
      const state = byPath.get(path)
      byPath.delete(path)
      if (state === undefined) {
        repair.found.push(`server ${path} was missing`)
        repair.reload = true
        continue
      }
      const found = repair.found.length
      if (state.weight !== server.weight) {
        repair.found.push(`server ${path} had weight ${state.weight}`)
        repair.commands.push(`set server ${path} weight ${server.weight}`)
      }
      if (inMaintenance(state) !== server.disabled || (!server.disabled && isDrainedByHand(state))) {
        repair.found.push(`server ${path} was ${server.disabled ? 'enabled' : 'out of service'}`)
        repair.commands.push(`set server ${path} state ${server.disabled ? 'maint' : 'ready'}`)
      }
      for (const check of state.checksOff) {
        repair.found.push(`server ${path} was not checked`)
        repair.commands.push(`enable ${check} ${path}`)
      }
      const difference = repair.found.length > found ? null : differenceOf(server, state)
      if (difference === null) continue
      repair.found.push(`server ${path} ${difference}`)
      repair.reload = true
    }
  }
  const ours = new Set(haproxy.backends.map(({ name }) => name))
  for (const [path, state] of byPath) {
    if (!ours.has(state.backend) || inMaintenance(state)) continue
    repair.found.push(`server ${path} was not wanted`)
    repair.reload = true
  }
  const statuses = new Map(proxies.filter(({ kind }) => kind === 'frontend').map(({ name, status }) => [name, status]))
  for (const name of objects.listeners) {
    const status = statuses.get(name)
    if (status === 'OPEN' || status === 'FULL') continue
    repair.found.push(`listener ${name} was ${status === undefined ? 'missing' : 'disabled'}`)
    if (status === 'PAUSED') repair.commands.push(`enable frontend ${name}`)
    else repair.reload = true
  }
  return repair
}
