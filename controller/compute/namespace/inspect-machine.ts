import { readdirSync, readFileSync } from 'node:fs'
import { nftTables } from '../../network/local/nft-command.js'
import { readProcessStat } from '../../process/process-stat.js'
import type { Inspection } from '../driver.js'
import { judge } from '../host/evidence.js'
import { unlessGone } from '../host/unless-gone.js'

/** More than a legitimate machine has; a compromised one must not keep its host busy. */
const MAX_PROCESSES = 4_096

/**
 * Checks from the host whether HAProxy is alive in a machine and listens, and whether the kernel forwards UDP and SCTP
 * there. Reads only kernel tables, so the result depends on neither the management network nor anything inside the
 * machine.
 * @param holder the process that holds the machine
 * @param namespace name of its network namespace
 * @returns null if the host shows none of its processes
 * @throws Error if the inspection fails, which proves nothing about the machine
 */
export async function inspectMachine(holder: number, namespace: string): Promise<Inspection | null> {
  const processes = descendantsOf(holder)
  if (processes.length === 0) return null
  return judge({
    haproxy: processes.filter(({ name }) => name === 'haproxy'),
    ports: listeningSockets(holder),
    tables: await nftTables(namespace, 'inet'),
  })
}

type ProcessState = { pid: number; parent: number; name: string; state: string }

/** All processes of the machine descend from its holder, because the machine's process 1 adopts orphans. */
function descendantsOf(holder: number): ProcessState[] {
  const found: ProcessState[] = []
  const queue = childrenOf(holder)
  for (let pid = queue.pop(); pid !== undefined && found.length < MAX_PROCESSES; pid = queue.pop()) {
    const state = stateOf(pid)
    if (state === null) continue
    found.push(state)
    queue.push(...childrenOf(pid))
  }
  return found
}

function childrenOf(pid: number): number[] {
  return unlessGone(() => readdirSync(`/proc/${pid}/task`), []).flatMap(thread =>
    readOrEmpty(`/proc/${pid}/task/${thread}/children`).split(' ').filter(Boolean).map(Number),
  )
}

function stateOf(pid: number): ProcessState | null {
  const stat = readProcessStat(pid)
  return stat === null ? null : { pid, parent: stat.parent, name: stat.name, state: stat.state }
}

/** The port of each listening socket, in ascending order. */
function listeningSockets(pid: number): number[] {
  // Hexadecimal local address and port, remote address and port, then the state; 0A is LISTEN.
  const sockets = ['tcp', 'tcp6'].map(table => readOrEmpty(`/proc/${pid}/net/${table}`)).join('')
  const ports = [...sockets.matchAll(/:([0-9A-F]{4}) [0-9A-F]+:0000 0A /g)].map(([, port]) =>
    Number.parseInt(port!, 16),
  )
  return ports.sort((a, b) => a - b)
}

const readOrEmpty = (path: string): string => unlessGone(() => readFileSync(path, 'utf8'), '')
