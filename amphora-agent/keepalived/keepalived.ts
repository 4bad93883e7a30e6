import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, openSync } from 'node:fs'
import type { Log } from '../log/log.js'
import { childrenOf, isSuspended, killIfRunning } from '../process/process-table.js'
import { run } from '../process/run.js'
import { Supervisor } from '../process/supervisor.js'
import { KEEPALIVED_PID_FILE, KEEPALIVED_VRRP_PID_FILE, LOG_DIRECTORY } from '../protocol/paths.js'
import { waitFor } from '../time/wait.js'

export const KEEPALIVED_LOG = `${LOG_DIRECTORY}/keepalived.log`

const PROGRAM = '/usr/sbin/keepalived'
const MAX_OUTPUT = 4_000
/** A keepalived that rejects its configuration exits within this time. */
const SETTLE_MS = 300

export class KeepalivedFailure extends Error {}

export type Keepalived = {
  adopt: () => boolean
  pid: () => number | null
  /** How many times in a row it exited soon after its start. */
  failures: () => number
  /** Kills suspended (SIGSTOP) processes; the supervisor restarts them. @returns whether there were any */
  killSuspended: () => boolean
  /** @throws KeepalivedFailure if it exits at once */
  start: () => Promise<void>
  /** Reloads the configuration; the VRRP state is kept. @throws KeepalivedFailure if it exits */
  reload: () => Promise<void>
  stop: () => Promise<void>
  close: () => void
}

/**
 * @param beforeRead called before keepalived reads its file
 * @param onEnd called when keepalived exits unexpectedly: it leaves the VIPs on the interfaces, and the peer takes
 * them too
 */
export function createKeepalived({
  configuration,
  beforeRead,
  onEnd,
  log,
}: {
  configuration: string
  beforeRead: () => void
  onEnd: () => void
  log: Log
}): Keepalived {
  const supervisor = new Supervisor({
    name: 'keepalived',
    program: PROGRAM,
    argument: KEEPALIVED_PID_FILE,
    spawn: () => {
      beforeRead()
      return spawnKeepalived(configuration)
    },
    onEnd,
    log,
  })
  return {
    adopt: () => supervisor.adopt(),
    pid: () => supervisor.pid(),
    failures: () => supervisor.failures(),
    killSuspended: () => {
      const pid = supervisor.pid()
      const stopped = pid === null ? [] : [pid, ...childrenOf(pid)].filter(isSuspended)
      for (const each of stopped) killIfRunning(each)
      return stopped.length > 0
    },
    start: async () => {
      supervisor.start()
      await throwIfExited(supervisor, supervisor.pid())
    },
    reload: async () => {
      const pid = supervisor.pid()
      beforeRead()
      if (pid !== null) process.kill(pid, 'SIGHUP')
      await throwIfExited(supervisor, pid)
    },
    stop: () => supervisor.stop(),
    close: () => supervisor.close(),
  }
}

function spawnKeepalived(configuration: string): ChildProcess {
  const output = openSync(KEEPALIVED_LOG, 'a')
  const child = spawn(
    PROGRAM,
    ['-n', '-l', '-G', '-P', '-f', configuration, '-p', KEEPALIVED_PID_FILE, '-r', KEEPALIVED_VRRP_PID_FILE],
    { detached: true, stdio: ['ignore', output, output] },
  )
  closeSync(output)
  return child
}

/** Waits until keepalived would have exited. @throws KeepalivedFailure if it did, or did not run */
async function throwIfExited(supervisor: Supervisor, pid: number | null): Promise<void> {
  const hasExited = () => (pid === null || supervisor.pid() !== pid ? true : null)
  if (await waitFor(hasExited, { timeoutMs: SETTLE_MS })) throw new KeepalivedFailure('keepalived exited')
}

/** Has keepalived check the file. @returns null if it is valid, else keepalived's output */
export async function keepalivedConfigurationError(file: string): Promise<string | null> {
  const { status, stdout, stderr } = await run(PROGRAM, ['-t', '-f', file], { timeoutMs: 20_000 })
  if (status === 0) return null
  return (stdout + stderr).trim().slice(0, MAX_OUTPUT) || `keepalived -t exited with status ${status}`
}

export async function keepalivedVersion(): Promise<string> {
  const { stdout, stderr } = await run(PROGRAM, ['-v'])
  return /Keepalived v(\S+)/.exec(stdout + stderr)?.[1] ?? 'unknown'
}
