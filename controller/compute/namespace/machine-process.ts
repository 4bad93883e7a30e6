import { spawn } from 'node:child_process'
import { closeSync, lstatSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as wait } from 'node:timers/promises'
import { SSHD_PID_FILE } from '../../../amphora-agent/protocol/paths.js'
import { sourceFolder } from '../source-folder.js'
import type { MachineDirectory } from './machine-directory.js'

const START_LIMIT_MS = 20_000
const SSHD_LIMIT_MS = 3_000
const END_LIMIT_MS = 10_000

/** Host uids and gids for machines; no two machines use the same ones at a time. */
export type AccountRange = { first: number; count: number }

/** Accounts per machine; see start.sh. */
export const ACCOUNTS_PER_MACHINE = 8

/** A machine's individual or secret files, by the names that furnish.sh expects. */
export type BootData = Readonly<
  Record<
    'host-key' | 'controller-key' | 'operator-key' | 'boot' | 'management-address' | 'hostname' | 'seccomp',
    string
  >
>

export class MachineError extends Error {}

const scripts = sourceFolder('controller/compute/namespace/machine')
/** The files of an amphora that are the same wherever it runs. */
const amphoraFiles = sourceFolder('images/amphora')

/**
 * Starts the process that holds a machine, detached, so that it outlives this one. Returns once the machine's own
 * process 1 has started. The boot data goes through a pipe and is never on a disk, in arguments or in an
 * environment.
 * @throws MachineError with the machine's last output
 */
export async function startMachine(options: {
  directory: MachineDirectory
  /** A process in the user and network namespaces of the machine. */
  keeper: number
  node: string
  agentBundle: string
  bootData: BootData
  accounts: AccountRange
  /** Where to start searching for free accounts; any number. */
  accountHint: number
  /** Directories of the machine's control groups. */
  groups: readonly string[]
}): Promise<void> {
  const { directory, keeper, node, agentBundle, bootData, accounts, accountHint, groups } = options
  const lock = openSync(directory.lock, 'a', 0o600)
  const console = openSync(directory.console, 'a', 0o600)
  const blocks = Math.floor(accounts.count / ACCOUNTS_PER_MACHINE)
  const numbers = [accounts.first, blocks, accountHint % blocks].map(String)
  const programs = [amphoraFiles, node, agentBundle]
  const words = [join(scripts, 'start.sh'), directory.path, `${keeper}`, ...programs, ...numbers, ...groups]
  const child = spawn('/bin/bash', words, {
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
  const lines = Object.entries(bootData).map(([name, text]) => `${name} ${Buffer.from(text).toString('base64')}\n`)
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

/** The first line, or as much of it as the stream contains. */
async function firstLine(stream: Readable): Promise<string> {
  let text = ''
  for await (const piece of stream) {
    text += String(piece)
    if (text.includes('\n')) break
  }
  return text
}

/**
 * Waits for the pid file of the machine's sshd, which sshd writes once it listens. Polling the socket table
 * instead would keep a processor busy, because the kernel walks the sockets of the whole host.
 * @returns false on timeout
 */
export async function sshdListens(holder: number): Promise<boolean> {
  const file = `/proc/${holder}/root${SSHD_PID_FILE}`
  for (const until = performance.now() + SSHD_LIMIT_MS; performance.now() < until; await wait(10)) {
    if (isFile(file)) return true
  }
  return false
}

/** Follows no link, because the machine could have created it. */
const isFile = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false })?.isFile() ?? false

/** Ends a machine and everything in it at once, like a power failure. @throws MachineError if it does not end */
export async function endMachine(directory: MachineDirectory): Promise<void> {
  const holder = directory.holder()
  if (holder === null) return
  // Killing process 1 ends the holder, and once that has ended, everything has. Before process 1 exists, the holder
  // itself is killed.
  const [first] = readOrEmpty(`/proc/${holder}/task/${holder}/children`).trim().split(' ')
  kill(Number(first) || holder)
  for (const since = performance.now(); directory.holder() === holder; await wait(5)) {
    if (performance.now() - since > END_LIMIT_MS)
      throw new MachineError(`The process ${holder}, which holds the machine, did not end.`)
    if (performance.now() - since > 1_000) kill(holder)
  }
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
