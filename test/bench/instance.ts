import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { type ApiClient, signIn } from '../../controller/cli/api-client.js'
import { runningProcesses } from '../../controller/cli/state-directory/run-record.js'

const run = promisify(execFile)
export const TICKS_PER_SECOND = 100

/** A Krater to measure, with its own ports and PostgreSQL. */
export type BenchInstance = {
  directory: string
  api: ApiClient
  /** CPU seconds that the processes of the APIs have used so far. */
  apiCpu: () => number
  /** The same for the processes of PostgreSQL, including those that have ended. */
  databaseCpu: () => number
  /** Resident memory of each of our processes. */
  memory: () => { name: string; mebibytes: number }[]
  /** Runs a krater command on it. */
  krater: (...args: string[]) => Promise<{ stdout: string }>
  remove: () => Promise<void>
}

/** @param firstPort the first of five consecutive free ports */
export async function startInstance(
  root: string,
  settings: Readonly<Record<string, string>>,
  firstPort: number,
): Promise<BenchInstance> {
  const directory = mkdtempSync(join(tmpdir(), 'krb-'))
  const ports = ['IDENTITY', 'NETWORK', 'LOAD_BALANCER', 'KEY_MANAGER', 'HEALTH_MANAGER'].map(
    (service, at) => [`KRATER_${service}_PORT`, String(firstPort + at)] as const,
  )
  const environment = {
    ...process.env,
    KRATER_STATE_DIR: directory,
    KRATER_LOG_LEVEL: 'warn',
    ...Object.fromEntries(ports),
    ...settings,
  }
  const krater = (...args: string[]) =>
    run(process.execPath, [join(root, 'dist/krater.js'), ...args], { env: environment, timeout: 180_000 })
  const remove = async () => {
    // A benchmark's error comes before this one.
    await krater('down', '--all', '--yes').catch(error => process.stderr.write(`${error}\n`))
    rmSync(directory, { recursive: true, force: true })
  }
  try {
    await krater('up', '--detach')
    const apis = runningProcesses(directory).filter(({ name }) => name === 'api' || name.endsWith('-api'))
    return {
      directory,
      api: await signIn(directory, 'krater'),
      apiCpu: () => apis.reduce((sum, { identity }) => sum + processorSeconds(identity.pid), 0),
      databaseCpu: () => databaseSeconds(directory),
      memory: () =>
        runningProcesses(directory).map(({ name, identity }) => ({ name, mebibytes: residentMebibytes(identity.pid) })),
      krater,
      remove,
    }
  } catch (error) {
    await remove().catch(() => undefined)
    throw error
  }
}

/** CPU seconds that a process has used so far. */
export function processorSeconds(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND
}

/** CPU seconds of the postmaster, of its live processes, and of those that have ended. */
function databaseSeconds(directory: string): number {
  const postmaster = readFileSync(join(directory, 'postgres/data/postmaster.pid'), 'utf8').split('\n', 1)[0]
  const children = readFileSync(`/proc/${postmaster}/task/${postmaster}/children`, 'utf8').trim().split(' ')
  const stat = readFileSync(`/proc/${postmaster}/stat`, 'utf8')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ended = (Number(fields[13]) + Number(fields[14])) / TICKS_PER_SECOND
  const secondsOf = (pid: number) => {
    try {
      return processorSeconds(pid)
    } catch {
      // It has just ended; the postmaster reports its share.
      return 0
    }
  }
  return children.reduce((sum, pid) => sum + secondsOf(Number(pid)), ended + processorSeconds(Number(postmaster)))
}

export function residentMebibytes(pid: number): number {
  const [, kibibytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kibibytes ?? 0) / 1024
}
