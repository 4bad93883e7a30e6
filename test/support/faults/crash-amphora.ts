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

/** How the requests of a load went. `faults` says how those without an answer of 200 ended. */
export type Load = { faults: string[]; requests: number; longestMs: number }

/**
 * How long, in ms, a connection may take to be established, how long nothing may come over it, and how long a client rests
 * between two requests.
 */
type Pace = { connectMs: number; silentMs: number; restMs: number }

/** Sends requests to a URL from two clients until stopped. */
export function startRequests(
  url: string,
  pace: Pace = { connectMs: LOST_MS, silentMs: LOST_MS, restMs: 5 },
): { answered: () => number; stop: () => Promise<Load> } {
  const faults: string[] = []
  let answered = 0
  let longestMs = 0
  let running = true
  const client = async () => {
    let answeredAt = performance.now()
    while (running) {
      const fault = await request(url, pace)
      if (fault === null) {
        answered += 1
        longestMs = Math.max(longestMs, Math.round(performance.now() - answeredAt))
        answeredAt = performance.now()
      } else {
        faults.push(fault)
      }
      await delay(pace.restMs)
    }
  }
  const clients = Promise.all([client(), client()])
  return {
    answered: () => answered,
    stop: async () => {
      running = false
      await clients
      return { faults, longestMs, requests: answered + faults.length }
    },
  }
}

/** Sends one request over a new connection. @returns what is wrong with the answer; null when nothing is */
function request(url: string, { connectMs, silentMs }: Pace): Promise<string | null> {
  return new Promise(resolve => {
    const began = performance.now()
    const after = () => `after ${Math.round(performance.now() - began)} ms`
    const outgoing = get(url, { agent: false, timeout: silentMs }, response => {
      response.resume()
      response.on('end', () => resolve(response.statusCode === 200 ? null : `status ${response.statusCode} ${after()}`))
      response.on('error', error => resolve(`cut off ${after()}: ${error.message}`))
    })
    outgoing.on('socket', socket => {
      const late = () => socket.connecting && outgoing.destroy(new Error('no connection'))
      // A connection that was established in time, while this process was busy, counts: the kernel is asked first.
      const limit = setTimeout(() => setImmediate(late), connectMs)
      for (const event of ['connect', 'close']) socket.once(event, () => clearTimeout(limit))
    })
    outgoing.on('timeout', () => outgoing.destroy(new Error(`silent for ${silentMs} ms`)))
    outgoing.on('error', error => resolve(`no answer ${after()}: ${error.message}`))
  })
}
