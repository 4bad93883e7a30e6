import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bootId, startTicksOf } from '../../process/process-stat.js'
import { unlessGone } from './unless-gone.js'

/**
 * The state of a machine, in a directory that outlives its creator:
 *   process    `pid startTicks bootId` of the process that holds the machine, written by that process (start.sh)
 *   ready      exists once the machine's root is complete (furnish.sh)
 *   lock       locked by the process that holds the machine
 *   console    output of the machine while it started
 *   root/      mount point of its root, visible only to the machine
 *   ports/     one file per port, created before the interface and removed after it: the port's role, and the addresses
 *              from which the interface may send
 * The directory is created first and removed last, so no part of a machine can exist without it.
 */
export type MachineDirectory = ReturnType<typeof machineDirectory>

export type PortRole = 'management' | 'plugged'

export function machineDirectory(directory: string) {
  const inside = (name: string) => join(directory, name)
  const ports = inside('ports')
  return {
    path: directory,
    lock: inside('lock'),
    console: inside('console'),

    exists: () => existsSync(directory),

    prepare: () => {
      for (const path of [directory, inside('root'), ports]) mkdirSync(path, { recursive: true, mode: 0o700 })
    },

    /**
     * The process that holds the machine; null if there was none or it has ended. A recycled pid does not match.
     * @throws Error if the process cannot be read
     */
    holder: (): number | null => {
      const [pid, startTicks, boot] = (read(inside('process')) ?? '').trim().split(' ')
      const isSame = startTicks !== undefined && startTicks === String(startTicksOf(Number(pid))) && boot === bootId()
      return isSame ? Number(pid) : null
    },

    isReady: () => existsSync(inside('ready')),

    /** Identifies the latest start; undefined if the machine has not become ready since. */
    start: (): string | undefined => (existsSync(inside('ready')) ? (read(inside('process')) ?? undefined) : undefined),

    forgetProcess: () => {
      for (const name of ['process', 'ready', 'console']) rmSync(inside(name), { force: true })
    },

    recordPort: (portId: string, role: PortRole, addresses: readonly string[] = []) => {
      writeFileSync(`${ports}/.${portId}`, [role, ...addresses].join(' '))
      renameSync(`${ports}/.${portId}`, join(ports, portId))
    },
    forgetPort: (portId: string) => rmSync(join(ports, portId), { force: true }),
    recordedPorts: (role?: PortRole): string[] =>
      (existsSync(ports) ? readdirSync(ports) : []).filter(
        portId => !portId.startsWith('.') && (role === undefined || wordsOf(join(ports, portId))[0] === role),
      ),
    recordedAddresses: (portId: string): string[] | null => {
      const [, ...addresses] = wordsOf(join(ports, portId))
      return addresses.length === 0 ? null : addresses
    },

    /** The last lines of output of a failed start. */
    consoleTail: () => (read(inside('console')) ?? '').trim().split('\n').slice(-3).join(' / '),

    remove: () => rmSync(directory, { recursive: true, force: true }),
  }
}

const wordsOf = (path: string): string[] => (read(path) ?? '').split(' ')

const read = (path: string): string | null => unlessGone(() => readFileSync(path, 'utf8'), null)
