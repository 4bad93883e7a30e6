import { type ChildProcess, spawn } from 'node:child_process'
import type { Log } from '../log/log.js'
import type { Repairs } from '../log/repairs.js'
import { findByArgument, isStopped, killIfThere } from '../process/process-table.js'

/** One that ends so soon after its start is started again only after a pause. */
const SHORT_LIFE_MS = 1_000

type Watcher = { program: string; args: readonly string[] }

/** Programs that print a line for every change that the kernel makes known; in between they cost nothing. */
const WATCHERS: readonly Watcher[] = [
  { program: 'ip', args: ['-oneline', 'monitor', 'link', 'address', 'route', 'rule'] },
  { program: 'nft', args: ['monitor'] },
]

export type NetworkWatch = {
  /** Kills those that somebody has stopped, so that others take their place; to be called every few seconds. */
  endStopped: () => void
  close: () => void
}

/**
 * Calls `onChange` when anything changed in the kernel's network: interfaces, addresses, routes, rules, filters. It may call it for nothing, as
 * when a watcher had to be started again and may have missed something.
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
    child.on('error', error => log.error(`${program} cannot watch: ${error.message}`))
    child.on('close', () => {
      children.delete(watcher)
      if (closed) return
      const lived = performance.now() - startedAt
      if (lived >= SHORT_LIFE_MS) repairs.note(`${program}, which watches the network, had ended: it is started again`)
      const timer = setTimeout(
        () => {
          timers.delete(timer)
          start(watcher)
          onChange()
        },
        lived < SHORT_LIFE_MS ? SHORT_LIFE_MS : 0,
      )
      timers.add(timer)
    })
  }

  for (const watcher of WATCHERS) {
    // Those of an agent that was killed have nobody to tell.
    for (const { pid } of findByArgument(watcher.program, 'monitor')) killIfThere(pid)
    start(watcher)
  }
  return {
    endStopped: () => {
      for (const child of children.values()) if (child.pid !== undefined && isStopped(child.pid)) child.kill('SIGKILL')
    },
    close: () => {
      closed = true
      for (const timer of timers) clearTimeout(timer)
      for (const child of children.values()) child.kill('SIGKILL')
    },
  }
}
