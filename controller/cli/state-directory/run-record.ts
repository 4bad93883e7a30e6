import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { writePrivateFile } from '../../process/private-file.js'
import { identityOf, isAlive, type ProcessIdentity } from '../../process/process-identity.js'

/** `api` is a process that serves several APIs. */
export const PROCESS_NAMES = [
  'up',
  'api',
  'identity-api',
  'network-api',
  'load-balancer-api',
  'key-manager-api',
  'worker',
  'network-worker',
  'health-manager',
  'key-manager-worker',
  'acme-validator',
  'keystone-listener',
] as const

export type ProcessName = (typeof PROCESS_NAMES)[number]

const RECORD = new RegExp(`^(${PROCESS_NAMES.join('|')})\\.\\d+\\.json$`)

export type RunRecord = { name: ProcessName; identity: ProcessIdentity }

const directoryOf = (stateDirectory: string): string => join(stateDirectory, 'run')

/** Records that this process works on the state directory. @returns a function that removes the record */
export function recordRunning(stateDirectory: string, name: ProcessName): () => void {
  const identity = identityOf(process.pid)
  if (identity === null) throw new Error('This process is not in /proc.')
  const path = join(directoryOf(stateDirectory), `${name}.${process.pid}.json`)
  writePrivateFile(path, JSON.stringify({ name, identity } satisfies RunRecord))
  return () => rmSync(path, { force: true })
}

/** The live processes of this state directory. Removes the records of dead ones. */
export function runningProcesses(stateDirectory: string): RunRecord[] {
  const directory = directoryOf(stateDirectory)
  if (!existsSync(directory)) return []
  return readdirSync(directory)
    .filter(file => RECORD.test(file))
    .flatMap(file => {
      const record = readRecord(join(directory, file))
      if (record !== null && isAlive(record.identity)) return [record]
      forget(join(directory, file))
      return []
    })
}

/** On a read-only disk the record of a dead process stays, which harms nobody. */
function forget(path: string): void {
  try {
    rmSync(path, { force: true })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EROFS') throw error
  }
}

function readRecord(path: string): RunRecord | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as RunRecord
  } catch {
    return null
  }
}
