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
  /** The nftables table of UDP and SCTP listeners, with its family; `onDatagrams` is called after each transaction that changes it. */
  datagramsTable: string
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
    child.on('close', () => {
      children.delete(watcher)
      if (closed) return
      const ranForMs = performance.now() - startedAt
      if (ranForMs >= SHORT_RUN_MS) repairs.note(`${program} monitor, which watches the network, exited; restarted`)
      const timer = setTimeout(
        () => {
          timers.delete(timer)
          start(watcher)
          options.onChange()
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
function tellTransactions({ onChange, onDatagrams, datagramsTable }: Omit<WatchOptions, 'repairs' | 'log'>) {
  let changed = { datagrams: false, others: false }
  return (line: string): void => {
    if (line.startsWith('# new generation')) {
      const { datagrams, others } = changed
      changed = { datagrams: false, others: false }
      if (datagrams) onDatagrams()
      if (others) onChange()
    } else if (line.includes(` ${datagramsTable}`)) changed.datagrams = true
    else changed.others = true
  }
}
