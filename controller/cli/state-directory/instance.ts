import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigurationError } from '../../options/configuration-error.js'
import { writePrivateFile } from '../../process/private-file.js'
import { reasonOf, remedyFor } from '../faults/system-fault.js'
import { PROCESS_NAMES } from './run-record.js'

/** The path of PostgreSQL's socket in it must fit into 107 bytes. */
const MAX_STATE_DIRECTORY_LENGTH = 70

/**
 * Creates the state directory if it is missing, starting with its instance id. Only root can read its files; the
 * directory itself is searchable (0711), because PostgreSQL works in it as the postgres account.
 * @throws ConfigurationError when it cannot be created or written, or belongs to something else, such as /var
 */
export function ensureStateDirectory(directory: string): void {
  if (directory.length > MAX_STATE_DIRECTORY_LENGTH) {
    throw new ConfigurationError(
      `The state directory ${directory} has more than ${MAX_STATE_DIRECTORY_LENGTH} characters, too many for the sockets in it. Set KRATER_STATE_DIR to a shorter path.`,
    )
  }
  const foreign = instanceId(directory) === null ? foreignFolder(directory) : null
  if (foreign !== null) {
    throw new ConfigurationError(
      `${directory} is not Krater's: its folder "${foreign}" holds other files. Set KRATER_STATE_DIR to a directory that only Krater uses.`,
    )
  }
  try {
    mkdirSync(directory, { recursive: true, mode: 0o711 })
    ensureInstanceId(directory)
    chmodSync(directory, 0o711)
    mkdirSync(join(directory, 'log'), { recursive: true, mode: 0o700 })
    mkdirSync(join(directory, 'run'), { recursive: true, mode: 0o700 })
    writePrivateFile(join(directory, 'run/.writable'), '')
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    throw new ConfigurationError(
      `Cannot write to the state directory ${directory}: ${reasonOf(code)} (${code}). ${remedyFor(code, directory)}.`,
    )
  }
}

/** Files that processes leave when they are started before the first `krater up`. */
const OUR_LEFTOVERS = new RegExp(`^((${PROCESS_NAMES.join('|')})\\.(log|log\\.1|\\d+\\.json)|\\.writable)$`)

/** A folder named like one of Krater's that holds other files, as in /var; null when there is none. */
export function foreignFolder(directory: string): string | null {
  const isForeign = (name: string) =>
    existsSync(join(directory, name)) && readdirSync(join(directory, name)).some(file => !OUR_LEFTOVERS.test(file))
  return ['log', 'run'].find(isForeign) ?? null
}

/** Five hexadecimal digits, generated once, that distinguish this instance's namespaces and devices on the machine. */
export function ensureInstanceId(directory: string): string {
  const known = instanceId(directory)
  if (known !== null) return known
  const id = randomBytes(3).toString('hex').slice(0, 5)
  writePrivateFile(join(directory, 'instance'), `${id}\n`)
  return id
}

/** @returns null when Krater never used the directory */
export function instanceId(directory: string): string | null {
  const file = join(directory, 'instance')
  if (!existsSync(file)) return null
  const id = readFileSync(file, 'utf8').trim()
  if (!/^[0-9a-f]{5}$/.test(id)) {
    throw new ConfigurationError(
      `${file} must hold five hexadecimal digits. Write those back that \`ip netns\` shows in the names of this instance, or restore the file from a backup.`,
    )
  }
  return id
}
