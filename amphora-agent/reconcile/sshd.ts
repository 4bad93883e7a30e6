import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from 'node:fs'
import type { Repairs } from '../log/repairs.js'
import { isSuspended, killIfRunning } from '../process/process-table.js'
import { SSHD_PID_FILE } from '../protocol/paths.js'

/**
 * sshd hangs if connections wait in its queue at this many checks in a row; a new connection waits only for an
 * instant.
 */
const MAX_BUSY_CHECKS = 3
/** How often to check an empty queue: for each check, the kernel walks its table of all connections of the host. */
const QUEUE_CHECK_MS = 15_000
const LISTENING_LINE = /^ *\d+: \S+ \S+ 0A [0-9A-F]{8}:([0-9A-F]{8}) \S+ \S+ +\d+ +\d+ (\d+) /
const TABLES = ['/proc/net/tcp', '/proc/net/tcp6']

/**
 * Kills an sshd that is suspended or does not accept connections from its queue; the machine's init then starts
 * another. Does nothing if no sshd has written its pid.
 * @returns the check, to be run every few seconds
 */
export function createSshdWatch(repairs: Repairs): () => void {
  let busyChecks = 0
  let checkedAt = Number.NEGATIVE_INFINITY
  const checkQueue = (pid: number, now: number) => {
    if (busyChecks === 0 && now - checkedAt < QUEUE_CHECK_MS) return
    checkedAt = now
    const own = readSocketInodes(pid)
    busyChecks = own === null || isServed(TABLES.flatMap(listeningSockets), own) ? 0 : busyChecks + 1
  }
  return () => {
    const pid = sshdPid()
    if (pid === null) {
      busyChecks = 0
      return
    }
    checkQueue(pid, performance.now())
    if (busyChecks < MAX_BUSY_CHECKS && !isSuspended(pid)) return
    busyChecks = 0
    killIfRunning(pid)
    repairs.note('sshd hung; killed')
  }
}

function sshdPid(): number | null {
  try {
    const pid = Number(readFileSync(SSHD_PID_FILE, 'utf8'))
    return readFileSync(`/proc/${pid}/comm`, 'utf8') === 'sshd\n' ? pid : null
  } catch {
    return null
  }
}

/** The inodes of a process's sockets; null if it has exited or may not be inspected. */
function readSocketInodes(pid: number): Set<string> | null {
  const directory = `/proc/${pid}/fd`
  try {
    const files = readdirSync(directory).map(file => readlinkSync(`${directory}/${file}`))
    return new Set(files.flatMap(file => /^socket:\[(\d+)\]$/.exec(file)?.[1] ?? []))
  } catch {
    return null
  }
}

/**
 * Whether sshd listens and its queues are empty. Identifies its sockets by inode: a listener of the load balancer
 * may have the same port, and be full.
 * @param sockets lines of /proc/net/tcp: slot, local address and port, remote address and port, state, the lengths
 * of two
 *   queues, timers, and last the inode
 * @param own inodes of sshd's sockets
 */
export function isServed(sockets: readonly string[], own: ReadonlySet<string>): boolean {
  const queues = sockets.flatMap(line => {
    const [, queue, number] = LISTENING_LINE.exec(line) ?? []
    return queue !== undefined && number !== undefined && own.has(number) ? [queue] : []
  })
  return queues.length > 0 && queues.every(queue => queue === '00000000')
}

/** Reads only the start of the table: listening sockets come first, and there may be any number of others. */
function listeningSockets(table: string): string[] {
  let file: number
  try {
    file = openSync(table, 'r')
  } catch {
    // The kernel has no IPv6.
    return []
  }
  try {
    const piece = Buffer.alloc(16_384)
    let text = ''
    for (let size = readSync(file, piece); size > 0; size = readSync(file, piece)) {
      text += piece.toString('latin1', 0, size)
      if (/ [0-9A-F]{4} 0[1-9B-F] /.test(text)) break
    }
    return text.split('\n')
  } finally {
    closeSync(file)
  }
}
