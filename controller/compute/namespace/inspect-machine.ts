import { readdirSync, readFileSync } from 'node:fs'
import { readProcessStat } from '../../process/process-stat.js'
import type { Inspection } from '../driver.js'
import { unlessGone } from './unless-gone.js'

/** States of a process in which it answers nobody: stopped, traced, dead, and dead but not collected. */
const STANDSTILL = /^[TtXZ]$/
const SSH_PORT = 22
/** More processes than an honest machine has: one that was taken over must not keep its host busy. */
const MOST_PROCESSES = 4_096

/**
 * Looks into a machine from its host: whether HAProxy is alive there and listens. Reads the kernel's tables only, so neither the management
 * network nor anything inside the machine has a say in it.
 * @param holder the process that holds the machine
 * @returns null when the host shows none of its processes
 * @throws Error when the host cannot look: that says nothing about the machine
 */
export function inspectMachine(holder: number): Inspection | null {
  const processes = descendantsOf(holder)
  if (processes.length === 0) return null
  const haproxy = processes.filter(({ name }) => name === 'haproxy')
  // Its master only waits for its workers.
  const workers = haproxy.filter(({ pid }) => !haproxy.some(({ parent }) => parent === pid))
  if (workers.length === 0) return { serves: false, finding: 'HAProxy does not run' }
  if (workers.every(({ state }) => STANDSTILL.test(state))) return { serves: false, finding: 'HAProxy is stopped' }
  const ports = listeningSockets(holder)
  // sshd has one socket, at the management address; a listener may have the same port at the VIP.
  const sshd = ports.indexOf(SSH_PORT)
  if (sshd >= 0) ports.splice(sshd, 1)
  return ports.length === 0
    ? { serves: false, finding: 'HAProxy listens on no port' }
    : { serves: true, finding: `HAProxy runs and listens on ${[...new Set(ports)].join(', ')}` }
}

type ProcessState = { pid: number; parent: number; name: string; state: string }

/** Every process of the machine descends from its holder: what loses its parent there passes to the machine's process 1. */
function descendantsOf(holder: number): ProcessState[] {
  const found: ProcessState[] = []
  const waiting = childrenOf(holder)
  for (let pid = waiting.pop(); pid !== undefined && found.length < MOST_PROCESSES; pid = waiting.pop()) {
    const state = stateOf(pid)
    if (state === null) continue
    found.push(state)
    waiting.push(...childrenOf(pid))
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
  // Local address and port in hexadecimal, then the remote ones, then the state: 0A is LISTEN.
  const sockets = ['tcp', 'tcp6'].map(table => readOrEmpty(`/proc/${pid}/net/${table}`)).join('')
  const ports = [...sockets.matchAll(/:([0-9A-F]{4}) [0-9A-F]+:0000 0A /g)].map(([, port]) =>
    Number.parseInt(port!, 16),
  )
  return ports.sort((a, b) => a - b)
}

const readOrEmpty = (path: string): string => unlessGone(() => readFileSync(path, 'utf8'), '')
