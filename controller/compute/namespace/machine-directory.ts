import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bootId, startTicksOf } from '../../process/process-stat.js'
import { unlessGone } from './unless-gone.js'

/**
 * What is known of a machine outlives its creator in a directory of its own:
 *   process    `pid startTicks bootId` of the process that holds the machine, written by that process itself (start.sh)
 *   ready      exists when the machine's root stood complete (furnish.sh)
 *   lock       locked by the process that holds the machine
 *   console    what the machine said while it started
 *   root/      where its root is mounted, seen by itself alone
 *   ports/     one file per port, made before the interface and removed after it: its role, and the addresses that its interface may send from
 * The directory is made first and removed last, so nothing of a machine can be left without it.
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
     * The process that holds the machine; null when none ever did, or when it has ended (a recycled pid is not mistaken for it).
     * @throws Error when the host cannot look
     */
    holder: (): number | null => {
      const [pid, startTicks, boot] = (read(inside('process')) ?? '').trim().split(' ')
      const isSame = startTicks !== undefined && startTicks === String(startTicksOf(Number(pid))) && boot === bootId()
      return isSame ? Number(pid) : null
    },

    isReady: () => existsSync(inside('ready')),

    /** What tells the latest start from those before; undefined when the machine has not stood complete since. */
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

    /** The last words of a start that failed. */
    lastWords: () => (read(inside('console')) ?? '').trim().split('\n').slice(-3).join(' / '),

    remove: () => rmSync(directory, { recursive: true, force: true }),
  }
}

const wordsOf = (path: string): string[] => (read(path) ?? '').split(' ')

const read = (path: string): string | null => unlessGone(() => readFileSync(path, 'utf8'), null)
