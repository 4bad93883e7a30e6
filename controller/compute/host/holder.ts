import { spawn } from 'node:child_process'
import { closeSync, openSync, readFileSync } from 'node:fs'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as wait } from 'node:timers/promises'
import type { MachineDirectory } from './machine-directory.js'
import { MachineError } from './machine-error.js'

const START_LIMIT_MS = 20_000
const END_LIMIT_MS = 10_000

/** Host uids and gids for machines; no two machines use the same ones at a time. */
export type AccountRange = { first: number; count: number }

/** Accounts per machine; see holder.sh. */
export const ACCOUNTS_PER_MACHINE = 8

/** The words by which a script that sources holder.sh finds free accounts. @param hint where to start; any number */
export function accountWords({ first, count }: AccountRange, hint: number): string[] {
  const blocks = Math.floor(count / ACCOUNTS_PER_MACHINE)
  return [first, blocks, hint % blocks].map(String)
}

/**
 * Starts the process that holds a machine, detached, so that it outlives this one. Returns once it has reported on
 * file 4 that the machine has started. The boot data goes through a pipe and is never on a disk, in arguments or in an
 * environment.
 * @param script a script that sources holder.sh, and its words
 * @throws MachineError with the machine's last output
 */
export async function startHolder(
  directory: MachineDirectory,
  script: readonly string[],
  bootData: Readonly<Record<string, string | Uint8Array>>,
): Promise<void> {
  const lock = openSync(directory.lock, 'a', 0o600)
  const console = openSync(directory.console, 'a', 0o600)
  const child = spawn('/bin/bash', script, {
    detached: true,
    cwd: '/',
    stdio: ['pipe', console, console, lock, 'pipe'],
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C.UTF-8' },
  })
  closeSync(lock)
  closeSync(console)
  const failure = new Promise<never>((_, reject) => {
    child.once('error', error => reject(new MachineError(`The machine could not be started: ${error.message}`)))
  })
  failure.catch(() => undefined)
  const stdin = child.stdio[0] as Writable
  const readiness = child.stdio[4] as Readable
  stdin.on('error', () => undefined)
  const lines = Object.entries(bootData).map(([name, content]) => `${name} ${toBase64(content)}\n`)
  stdin.end(`${lines.join('')}end\n`)
  const limit = new AbortController()
  try {
    const status = await Promise.race([
      failure,
      firstLine(readiness),
      wait(START_LIMIT_MS, `not ready after ${START_LIMIT_MS / 1000} s`, { signal: limit.signal }),
    ])
    if (status.trim() !== 'ready') {
      child.kill('SIGKILL')
      throw new MachineError(
        `The machine did not start: ${directory.consoleTail() || status || 'it ended without output'}`,
      )
    }
  } finally {
    limit.abort()
    stdin.destroy()
    readiness.destroy()
    child.unref()
  }
}

const toBase64 = (content: string | Uint8Array): string =>
  (typeof content === 'string' ? Buffer.from(content) : Buffer.from(content)).toString('base64')

/** The first line, or as much of it as the stream contains. */
async function firstLine(stream: Readable): Promise<string> {
  let text = ''
  for await (const piece of stream) {
    text += String(piece)
    if (text.includes('\n')) break
  }
  return text
}

/** Ends a machine and everything in it at once, like a power failure. @throws MachineError if it does not end */
export async function endMachine(directory: MachineDirectory): Promise<void> {
  const holder = directory.holder()
  if (holder === null) return
  // Killing process 1 ends the holder, and once that has ended, everything has. Before process 1 exists, the holder
  // itself is killed.
  kill(firstProcess(holder) ?? holder)
  for (const since = performance.now(); directory.holder() === holder; await wait(5)) {
    if (performance.now() - since > END_LIMIT_MS)
      throw new MachineError(`The process ${holder}, which holds the machine, did not end.`)
    if (performance.now() - since > 1_000) kill(holder)
  }
}

/** Process 1 of the machine that a process holds, by its pid on the host; null before it exists. */
export function firstProcess(holder: number): number | null {
  const [first] = readOrEmpty(`/proc/${holder}/task/${holder}/children`).trim().split(' ')
  return Number(first) || null
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
