import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { bootId, startTicksOf } from '../../process/process-stat.js'
import { unlessGone } from './unless-gone.js'

/**
 * The state of a machine, in a directory that outlives its creator:
 *   process    `pid startTicks bootId` of the process that holds the machine, written by that process (start.sh)
 *   ready      exists once the machine's root is complete (furnish.sh), or a virtual machine has begun to run
 *   lock       locked by the process that holds the machine
 *   console    output of the machine while it started; of a virtual machine, the last of all that it and QEMU have said
 *   account    the uid and gid of its QEMU, if it is a virtual machine (qemu/machine/start.sh)
 *   image      tag and id of the image whose root file system a machine in namespaces shares; absent if it shares its host's
 *   hardware   what a virtual machine has, as JSON; written before it starts
 *   monitor    the socket of QEMU's monitor
 *   evidence   the socket of a virtual machine's second serial line (qemu/ask-machine.ts)
 *   disk.qcow2 what a virtual machine has changed of its image since its start; disk.qcow2.new until it is complete
 *   root/      mount point of its root, visible only to the machine
 *   ports/     one file per port, created before the interface and removed after it: the port's role, and the addresses
 *              from which the interface may send
 * The directory is created first and removed last, so no part of a machine can exist without it.
 */
export type MachineDirectory = ReturnType<typeof machineDirectory>

/** What a virtual machine has, and its image. */
export type Hardware = {
  /** Of the machine and its QEMU. */
  memoryMiB: number
  acceleration: 'kvm' | 'tcg'
  image: { tag: string; id: string }
  /** How many bytes the file of its disk may have. Absent until the disk is there. */
  diskBytes?: number
}

const MAX_TAIL_CHARACTERS = 500

export type PortRole = 'management' | 'plugged'

export function machineDirectory(directory: string) {
  const inside = (name: string) => join(directory, name)
  const ports = inside('ports')
  return {
    path: directory,
    lock: inside('lock'),
    console: inside('console'),
    monitor: inside('monitor'),
    evidence: inside('evidence'),
    disk: inside('disk.qcow2'),

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

    markReady: () => writeFileSync(inside('ready'), ''),
    isReady: () => existsSync(inside('ready')),

    /** Identifies the latest start; undefined if the machine has not become ready since. */
    start: (): string | undefined => (existsSync(inside('ready')) ? (read(inside('process')) ?? undefined) : undefined),

    forgetProcess: () => {
      for (const name of ['process', 'ready', 'console', 'image']) rmSync(inside(name), { force: true })
    },

    recordImage: ({ tag, id }: { tag: string; id: string }) => writeFileSync(inside('image'), `${tag} ${id}`),
    image: (): { tag: string; id: string } | null => {
      const [tag, id] = wordsOf(inside('image'))
      return tag === undefined || id === undefined ? null : { tag, id }
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

    /** @throws Error if QEMU's account is not recorded */
    account: (): number => {
      const account = Number(readFileSync(inside('account'), 'utf8'))
      if (!Number.isSafeInteger(account) || account <= 0) throw new Error(`${inside('account')} is not a uid.`)
      return account
    },

    /** Null if it is no virtual machine. */
    hardware: (): Hardware | null => {
      const text = read(inside('hardware'))
      return text === null || text === '' ? null : (JSON.parse(text) as Hardware)
    },
    recordHardware: (hardware: Hardware) => {
      writeFileSync(inside('hardware.new'), JSON.stringify(hardware))
      renameSync(inside('hardware.new'), inside('hardware'))
    },

    forgetHardware: () => rmSync(inside('hardware'), { force: true }),

    /** All output that is kept; null if there is none. */
    consoleText: (): string | null => read(inside('console')),

    /** The last lines of what is kept, for a log or a message. */
    consoleTail: () =>
      (read(inside('console')) ?? '').trim().split('\n').slice(-3).join(' / ').slice(-MAX_TAIL_CHARACTERS),

    remove: () => rmSync(directory, { recursive: true, force: true }),
  }
}

const wordsOf = (path: string): string[] => (read(path) ?? '').split(' ')

const read = (path: string): string | null => unlessGone(() => readFileSync(path, 'utf8'), null)
