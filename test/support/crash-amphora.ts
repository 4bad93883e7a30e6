import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { ask } from '../../controller/cli/demo/traffic.js'

const run = promisify(execFile)

export type InsideProcess = { pid: number; command: string; isFirst: boolean }

/** What runs in an amphora, with the host's process ids. */
export async function processesInside(namespace: string): Promise<InsideProcess[]> {
  const { stdout } = await run('ip', ['netns', 'pids', namespace], { timeout: 10_000 })
  return stdout
    .split('\n')
    .filter(Boolean)
    .flatMap(word => {
      try {
        const command = readFileSync(`/proc/${word}/cmdline`, 'utf8').replaceAll('\0', ' ').trim()
        const ids =
          /^NSpid:(.*)$/m
            .exec(readFileSync(`/proc/${word}/status`, 'utf8'))?.[1]
            ?.trim()
            .split(/\s+/) ?? []
        return [{ pid: Number(word), command, isFirst: ids.length > 1 && ids.at(-1) === '1' }]
      } catch {
        return []
      }
    })
}

/** kill -9; one that went with another that was killed before it is no fault. */
export function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** Asks a URL again and again, from two clients, until stopped. */
export function startRequests(url: string): { answered: () => number; stop: () => Promise<string[]> } {
  const faults: string[] = []
  let answered = 0
  let running = true
  const client = async () => {
    while (running) {
      const reply = await ask(url)
      if (reply?.status === 200) answered += 1
      else faults.push(reply === null ? 'no answer' : `status ${reply.status}`)
      await delay(5)
    }
  }
  const clients = Promise.all([client(), client()])
  return {
    answered: () => answered,
    stop: async () => {
      running = false
      await clients
      return faults
    },
  }
}
