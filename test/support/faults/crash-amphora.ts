import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { get } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** A request without an answer for this long is lost; on a busy machine one may take a second. */
const LOST_MS = 10_000

export type InsideProcess = { pid: number; command: string; isFirst: boolean }

/** The processes in an amphora, with the host's process ids. */
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

/** kill -9. A process that died with another one is no fault. */
export function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** Sends requests to a URL from two clients until stopped. */
export function startRequests(url: string): { answered: () => number; stop: () => Promise<string[]> } {
  const faults: string[] = []
  let answered = 0
  let running = true
  const client = async () => {
    while (running) {
      const fault = await request(url)
      if (fault === null) answered += 1
      else faults.push(fault)
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

/** Sends one request over a new connection. @returns what is wrong with the answer; null when nothing is */
function request(url: string): Promise<string | null> {
  return new Promise(resolve => {
    const outgoing = get(url, { agent: false, timeout: LOST_MS }, response => {
      response.resume()
      response.on('end', () => resolve(response.statusCode === 200 ? null : `status ${response.statusCode}`))
      response.on('error', error => resolve(`cut off: ${error.message}`))
    })
    outgoing.on('timeout', () => outgoing.destroy(new Error(`no answer for ${LOST_MS} ms`)))
    outgoing.on('error', error => resolve(`no answer: ${error.message}`))
  })
}
