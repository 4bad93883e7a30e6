import { type ChildProcess, spawn } from 'node:child_process'
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

/**
 * Calls `onChange` when anything changes in the kernel's network: interfaces, addresses, routes, rules, filters. It
 * may call it without a change, as after a watcher was restarted and may have missed one.
 */
export function watchNetwork(onChange: () => void, repairs: Repairs, log: Log): NetworkWatch {
  const children = new Map<Watcher, ChildProcess>()
  const timers = new Set<NodeJS.Timeout>()
  let closed = false

  const start = (watcher: Watcher) => {
    const { program, args } = watcher
    const startedAt = performance.now()
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    children.set(watcher, child)
    child.stdout.on('data', onChange)
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
          onChange()
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
