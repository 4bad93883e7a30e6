import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from 'node:fs'
import type { Repairs } from '../log/repairs.js'
import { isStopped, killIfThere } from '../process/process-table.js'
import { SSHD_PID_FILE } from '../protocol/paths.js'

/** Somebody who just came waits for an instant; nobody waits at so many looks in a row but at a door where nobody opens. */
const WAITED_LOOKS = 3
/** How often it looks who waits, when nobody did: to tell, the kernel walks its table of all the host's connections. */
const QUEUE_LOOK_MS = 15_000
const DOOR = /^ *\d+: \S+ \S+ 0A [0-9A-F]{8}:([0-9A-F]{8}) \S+ \S+ +\d+ +\d+ (\d+) /
const TABLES = ['/proc/net/tcp', '/proc/net/tcp6']

/**
 * Ends an sshd that is stopped or takes nobody from its queue; the machine's init starts another one. Where no sshd has told its number, nothing is done.
 * @returns the look, to be taken every few seconds
 */
export function createSshdWatch(repairs: Repairs): () => void {
  let waited = 0
  let lookedAt = Number.NEGATIVE_INFINITY
  const countLooks = (pid: number, now: number) => {
    if (waited === 0 && now - lookedAt < QUEUE_LOOK_MS) return
    lookedAt = now
    const own = socketsOf(pid)
    waited = own === null || isServed(TABLES.flatMap(listeningSockets), own) ? 0 : waited + 1
  }
  return () => {
    const pid = sshdPid()
    if (pid === null) {
      waited = 0
      return
    }
    countLooks(pid, performance.now())
    if (waited < WAITED_LOOKS && !isStopped(pid)) return
    waited = 0
    killIfThere(pid)
    repairs.note('sshd hung: it is killed')
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

/** The numbers of a process's sockets; null when it has ended or may not be looked at. */
function socketsOf(pid: number): Set<string> | null {
  const directory = `/proc/${pid}/fd`
  try {
    const files = readdirSync(directory).map(file => readlinkSync(`${directory}/${file}`))
    return new Set(files.flatMap(file => /^socket:\[(\d+)\]$/.exec(file)?.[1] ?? []))
  } catch {
    return null
  }
}

/**
 * Whether sshd listens and nobody waits there. It goes by the numbers of its sockets: a listener of the load balancer may have the same port, and be full.
 * @param sockets lines of /proc/net/tcp: after its place the local address and port, the remote ones, the state, the lengths of two queues, timers, and
 *   at last the number
 * @param own numbers of sshd's sockets
 */
export function isServed(sockets: readonly string[], own: ReadonlySet<string>): boolean {
  const queues = sockets.flatMap(line => {
    const [, queue, number] = DOOR.exec(line) ?? []
    return queue !== undefined && number !== undefined && own.has(number) ? [queue] : []
  })
  return queues.length > 0 && queues.every(queue => queue === '00000000')
}

/** The first lines: those that listen come before all others, of which there may be any number. */
function listeningSockets(table: string): string[] {
  let file: number
  try {
    file = openSync(table, 'r')
  } catch {
    // A kernel without IPv6.
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
