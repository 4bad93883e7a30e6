import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import type { Log } from '../log/log.js'
import type { Repairs } from '../log/repairs.js'
import { findByArgument, isSuspended, killIfRunning } from '../process/process-table.js'

/** A watcher that ran for less than this is restarted after a pause. */
const SHORT_RUN_MS = 1_000

type Watcher = { program: string; args: readonly string[] }

/** Programs that print a line for every change the kernel announces; they cost nothing in between. */
const WATCHERS: readonly Watcher[] = [
  { program: 'ip', args: ['-oneline', 'monitor', 'link', 'address', 'route', 'rule'] },
  { program: 'nft', args: ['monitor'] },
]

export type NetworkWatch = {
  /** Kills suspended (SIGSTOP) watchers, so that new ones replace them; call it every few seconds. */
  killSuspended: () => void
  close: () => void
}

export type WatchOptions = {
  onChange: () => void
  /**
   * The nftables table of UDP and SCTP listeners, with its family, and a set in it to which each transaction of our own
   * adds. `onDatagrams` is called after any other transaction that changes the table, or may have.
   */
  datagrams: { table: string; signatures: string }
  onDatagrams: () => void
  repairs: Repairs
  log: Log
}

/**
 * Calls `onChange` when anything changes in the kernel's network: interfaces, addresses, routes, rules, filters. It
 * may call it without a change, as after a watcher was restarted and may have missed one.
 */
export function watchNetwork({ repairs, log, ...options }: WatchOptions): NetworkWatch {
  const children = new Map<Watcher, ChildProcess>()
  const timers = new Set<NodeJS.Timeout>()
  let closed = false

  const start = (watcher: Watcher) => {
    const { program, args } = watcher
    const startedAt = performance.now()
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    children.set(watcher, child)
    const lines = createInterface({ input: child.stdout })
    lines.on('line', program === 'nft' ? tellTransactions(options) : options.onChange)
    child.on('error', error => log.error(`${program} cannot watch the network: ${error.message}`))
    child.on('close', (_, signal) => {
      children.delete(watcher)
      if (closed) return
      const ranForMs = performance.now() - startedAt
      // nft 1.0.6 crashes when it tells of the end of a timeout object.
      if (ranForMs >= SHORT_RUN_MS && signal !== 'SIGSEGV')
        repairs.note(`${program} monitor, which watches the network, exited; restarted`)
      const timer = setTimeout(
        () => {
          timers.delete(timer)
          start(watcher)
          options.onChange()
          if (program === 'nft') options.onDatagrams()
        },
        ranForMs < SHORT_RUN_MS ? SHORT_RUN_MS : 0,
      )
      timers.add(timer)
    })
  }

  for (const watcher of WATCHERS) {
    // Kill the orphaned watchers of an agent that was killed.
    for (const { pid } of findByArgument(watcher.program, 'monitor')) killIfRunning(pid)
    start(watcher)
  }
  return {
    killSuspended: () => {
      for (const child of children.values())
        if (child.pid !== undefined && isSuspended(child.pid)) child.kill('SIGKILL')
    },
    close: () => {
      closed = true
      for (const timer of timers) clearTimeout(timer)
      for (const child of children.values()) child.kill('SIGKILL')
    },
  }
}

/** Reads what nft prints: a line for each object that a transaction changes, and one for its end. */
function tellTransactions({
  onChange,
  onDatagrams,
  datagrams: { table, signatures },
}: Omit<WatchOptions, 'repairs' | 'log'>) {
  let changed = { datagrams: false, others: false, isOurs: false }
  return (line: string): void => {
    if (line.startsWith('# new generation')) {
      const { datagrams, others, isOurs } = changed
      changed = { datagrams: false, others: false, isOurs: false }
      // nft keeps silent about elements of sets that were replaced since it was started.
      const isUnknown = !datagrams && !others
      if ((datagrams || isUnknown) && !isOurs) onDatagrams()
      if (others || isUnknown) onChange()
    } else if (line.includes(` ${table}`)) {
      changed.datagrams = true
      if (line.startsWith(`add element ${table} ${signatures} `)) changed.isOurs = true
    } else changed.others = true
  }
}
