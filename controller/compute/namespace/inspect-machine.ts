import { readdirSync, readFileSync } from 'node:fs'
import { DATAGRAM_TABLE } from '../../../amphora-agent/protocol/datagrams.js'
import { nftTables } from '../../network/local/nft-command.js'
import { readProcessStat } from '../../process/process-stat.js'
import type { Inspection } from '../driver.js'
import { unlessGone } from '../host/unless-gone.js'

/** Process states without execution: stopped, traced, dead and zombie. */
const STANDSTILL = /^[TtXZ]$/
const SSH_PORT = 22
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
  const { serves, finding } = inspectHaproxy(holder, processes)
  const forwards = (await nftTables(namespace, 'inet')).includes(DATAGRAM_TABLE)
  return { serves, forwards, finding: forwards ? `${finding}; the kernel forwards UDP and SCTP` : finding }
}

function inspectHaproxy(holder: number, processes: readonly ProcessState[]): Omit<Inspection, 'forwards'> {
  const haproxy = processes.filter(({ name }) => name === 'haproxy')
  // The master only waits for its workers.
  const workers = haproxy.filter(({ pid }) => !haproxy.some(({ parent }) => parent === pid))
  if (workers.length === 0) return { serves: false, finding: 'HAProxy is not running' }
  if (workers.every(({ state }) => STANDSTILL.test(state))) return { serves: false, finding: 'HAProxy is stopped' }
  const ports = listeningSockets(holder)
  // sshd has one socket, on the management address; a listener may use the same port on a VIP.
  const sshd = ports.indexOf(SSH_PORT)
  if (sshd >= 0) ports.splice(sshd, 1)
  return ports.length === 0
    ? { serves: false, finding: 'HAProxy listens on no port' }
    : { serves: true, finding: `HAProxy runs and listens on ${[...new Set(ports)].join(', ')}` }
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
