import { canonical } from '../../network/address.js'
import type { HaproxyPart, Server } from '../../protocol/desired.js'
import { type Leaving, pathOf } from '../leaving.js'

/** One line of `show servers state`. */
export type ServerState = {
  backend: string
  name: string
  number: number
  address: string
  port: number
  weight: number
  operational: 'stopped' | 'starting' | 'running' | 'stopping'
  /** Bit field; see ADMIN_*. */
  admin: number
  checkConfigured: boolean
  /** Which checks are configured and somebody has turned off. */
  checksOff: ('health' | 'agent')[]
  /** The words of the line, for the server-state file. */
  words: string[]
}

/** Any bit that keeps the server out: forced, inherited or resolution maintenance. */
const ADMIN_MAINTENANCE = 0x01 | 0x02 | 0x20
/** Drain, forced or inherited. */
const ADMIN_DRAIN = 0x08 | 0x10

const OPERATIONAL = ['stopped', 'starting', 'running', 'stopping'] as const
const COLUMNS = 25
const CHECK_CONFIGURED = 2
const CHECK_ENABLED = 4

const isOff = (check: number): boolean => (check & CHECK_CONFIGURED) !== 0 && (check & CHECK_ENABLED) === 0

/** Reads `show servers state`, version 1. Lines that do not look like it are left out. */
export function parseServersState(text: string): ServerState[] {
  const states: ServerState[] = []
  for (const line of text.split('\n')) {
    const words = line.split(' ')
    if (words.length < COLUMNS || line.startsWith('#')) continue
    const operational = OPERATIONAL[Number(words[5])]
    if (operational === undefined) continue
    states.push({
      backend: words[1]!,
      number: Number(words[2]),
      name: words[3]!,
      address: words[4]!,
      operational,
      admin: Number(words[6]),
      weight: Number(words[7]),
      checkConfigured: (Number(words[13]) & CHECK_CONFIGURED) !== 0,
      checksOff: [
        ...(isOff(Number(words[13])) ? ['health' as const] : []),
        ...(isOff(Number(words[14])) ? ['agent' as const] : []),
      ],
      port: Number(words[18]),
      words,
    })
  }
  return states
}

export const inMaintenance = (state: ServerState): boolean => (state.admin & ADMIN_MAINTENANCE) !== 0
export const isDraining = (state: ServerState): boolean => (state.admin & ADMIN_DRAIN) !== 0 || state.weight === 0

/** Drained by a command; one with weight 0 is not. */
export const isDrainedByHand = ({ admin }: ServerState): boolean => (admin & ADMIN_DRAIN) !== 0

/**
 * How the servers that HAProxy runs differ from the wanted ones, as sentences; none when they agree. Backends that are not listed in the
 * wanted part are left alone, and servers that leave are there until they are free.
 */
export function differences(
  wanted: HaproxyPart,
  states: readonly ServerState[],
  leaving: readonly Leaving[] = [],
): string[] {
  const byPath = new Map<string, ServerState>(states.map(state => [`${state.backend}/${state.name}`, state]))
  const ours = new Set(wanted.backends.map(backend => backend.name))
  const found: string[] = []
  for (const backend of wanted.backends) {
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

export function differenceOf(server: Server, state: ServerState): string | null {
  if (state.number !== server.number) return `has number ${state.number}`
  if (canonical(state.address) !== canonical(server.address)) return `has address ${state.address}`
  if (state.port !== server.port) return `has port ${state.port}`
  if (state.weight !== server.weight) return `has weight ${state.weight}`
  if (inMaintenance(state) !== server.disabled) return server.disabled ? 'is not disabled' : 'is disabled'
  return null
}
