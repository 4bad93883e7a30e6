import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import { z } from 'zod'
import { canonical } from '../network/address.js'
import type { Desired, HaproxyPart, Server } from '../protocol/desired.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import { inMaintenance, type ServerState } from './runtime/servers-state.js'

const FILE = `${STATE_DIRECTORY}/known-down.json`

/** A member as its checks know it, whatever its name, its monitor or its persistence become. */
export const memberKey = (backend: string, address: string, port: number): string =>
  `${backend.split(':')[0]} ${canonical(address)} ${port}`

/** Whether anything but the agent says that it is up. */
export const isChecked = ({ options }: Server): boolean => options.includes('check') || options.includes('agent-check')

/** The keys of those that failed their checks. */
export function membersDown(states: readonly ServerState[]): Set<string> {
  const down = states.filter(state => state.operational === 'stopped' && !inMaintenance(state))
  return new Set(down.map(({ backend, address, port }) => memberKey(backend, address, port)))
}

/** The members that were down when HAProxy was last seen: a HAProxy that starts would take them for up until their next check. */
export type KnownDown = {
  keys: () => ReadonlySet<string>
  /** What HAProxy says now. */
  see: (states: readonly ServerState[]) => void
  /** What the controller has heard, for an amphora that has seen nothing yet. */
  suppose: (desired: Desired) => void
}

export function createKnownDown(): KnownDown {
  let keys = load()
  const keep = (next: ReadonlySet<string>) => {
    const text = JSON.stringify([...next].sort())
    if (text === JSON.stringify([...keys].sort())) return
    keys = next
    writeFileSync(`${FILE}.new`, text, { mode: 0o600 })
    renameSync(`${FILE}.new`, FILE)
  }
  return {
    keys: () => keys,
    see: states => keep(membersDown(states)),
    suppose: ({ haproxy, downMembers }) => keep(keysOf(haproxy, new Set(downMembers))),
  }
}

function keysOf(haproxy: HaproxyPart | null, names: ReadonlySet<string>): Set<string> {
  return new Set(
    (haproxy?.backends ?? []).flatMap(backend =>
      backend.servers
        .filter(({ name }) => names.has(name))
        .map(({ address, port }) => memberKey(backend.name, address, port)),
    ),
  )
}

function load(): ReadonlySet<string> {
  try {
    return new Set(z.array(z.string()).parse(JSON.parse(readFileSync(FILE, 'utf8'))))
  } catch {
    return new Set()
  }
}
