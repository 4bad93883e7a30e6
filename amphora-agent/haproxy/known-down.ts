import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { canonical } from '../network/address.js'
import type { Desired, HaproxyPart, Server } from '../protocol/desired.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import { inMaintenance, type ServerState } from './runtime/servers-state.js'

const FILE = `${STATE_DIRECTORY}/known-down.json`

/**
 * Identifies a member by what is checked; stays the same if its name, health monitor or session persistence
 * changes.
 */
export const memberKey = (backend: string, address: string, port: number): string =>
  `${backend.split(':')[0]} ${canonical(address)} ${port}`

/** Whether a health check or agent check can bring the server up again. */
export const isChecked = ({ options }: Server): boolean => options.includes('check') || options.includes('agent-check')

/** The keys of members that failed their checks. */
export function downMemberKeys(states: readonly ServerState[]): Set<string> {
  const down = states.filter(state => state.operational === 'stopped' && !inMaintenance(state))
  return new Set(down.map(({ backend, address, port }) => memberKey(backend, address, port)))
}

/**
 * The members that were down at the last observation of HAProxy. A HAProxy that starts would consider them up until
 * their next check.
 */
export type KnownDown = {
  keys: () => ReadonlySet<string>
  /** Replaces the keys with what HAProxy reports now. */
  update: (states: readonly ServerState[]) => void
  /** Replaces the keys with what the controller last heard, for an amphora without observations. */
  assume: (desired: Desired) => void
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
    update: states => keep(downMemberKeys(states)),
    assume: ({ haproxy, downMembers }) => keep(memberKeys(haproxy, new Set(downMembers))),
  }
}

function memberKeys(haproxy: HaproxyPart | null, names: ReadonlySet<string>): Set<string> {
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
