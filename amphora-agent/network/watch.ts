import { type ChildProcess, spawn } from 'node:child_process'
import type { Log } from '../log/log.js'
import { findByArgument, killIfThere } from '../process/process-table.js'

const RESTART_MS = 1_000

type Watcher = { program: string; args: readonly string[] }

/** Programs that print a line for every change that the kernel makes known; in between they cost nothing. */
const WATCHERS: readonly Watcher[] = [
  { program: 'ip', args: ['-oneline', 'monitor', 'link', 'address', 'route', 'rule'] },
  { program: 'nft', args: ['monitor'] },
]

/**
 * Calls `onChange` when anything changed in the kernel's network: cards, addresses, routes, rules, filters. It may call it for nothing, as
 * when a watcher had to be started again and may have missed something.
 * @returns a function that ends it
 */
export function watchNetwork(onChange: () => void, log: Log): () => void {
  const children = new Set<ChildProcess>()
  const timers = new Set<NodeJS.Timeout>()
  let ended = false

  const start = (watcher: Watcher) => {
    const { program, args } = watcher
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] })
    children.add(child)
    child.stdout.on('data', onChange)
    child.on('error', error => log.error(`${program} cannot watch: ${error.message}`))
    child.on('close', () => {
      children.delete(child)
      if (ended) return
      const timer = setTimeout(() => {
        timers.delete(timer)
        start(watcher)
        onChange()
      }, RESTART_MS)
      timers.add(timer)
    })
  }

  for (const watcher of WATCHERS) {
    // Those of an agent that was killed have nobody to tell.
    for (const { pid } of findByArgument(watcher.program, 'monitor')) killIfThere(pid)
    start(watcher)
  }
  return () => {
    ended = true
    for (const timer of timers) clearTimeout(timer)
    for (const child of children) child.kill('SIGKILL')
  }
}
