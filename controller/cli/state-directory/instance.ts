import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigurationError } from '../../options/configuration-error.js'
import { writePrivateFile } from '../../process/private-file.js'

/** The path of PostgreSQL's socket below it must fit into 107 bytes. */
const LONGEST_STATE_DIRECTORY = 70

/**
 * Creates the state directory if it is missing, and its instance id first of all. Only root can read its files; the directory itself is
 * searchable (0711), because PostgreSQL works below it under its own account.
 * @throws ConfigurationError when it cannot be created or written, or belongs to something else, such as /var
 */
export function ensureStateDirectory(directory: string): void {
  if (directory.length > LONGEST_STATE_DIRECTORY) {
    throw new ConfigurationError(
      `The state directory ${directory} has more than ${LONGEST_STATE_DIRECTORY} characters: sockets below it would be unusable. Choose a shorter one with KRATER_STATE_DIR.`,
    )
  }
  const foreign = instanceId(directory) === null ? foreignFolder(directory) : null
  if (foreign !== null) {
    throw new ConfigurationError(
      `${directory} is not Krater's: it has a folder "${foreign}" with files of others. Name a directory of Krater's own with KRATER_STATE_DIR.`,
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
    const reason = code === 'ENOSPC' ? 'the disk is full' : code === 'EROFS' ? 'the file system is read-only' : code
    throw new ConfigurationError(`The state directory ${directory} cannot be written: ${reason}.`)
  }
}

/** Files of processes that were started before the first `krater up` in a directory. */
const OUR_REMAINS = /^((up|api|worker|health-manager)\.(log|log\.1|\d+\.json)|\.writable)$/

/** A folder with a name of ours but files of others, as in /var; null when there is none. */
export function foreignFolder(directory: string): string | null {
  const isForeign = (name: string) =>
    existsSync(join(directory, name)) && readdirSync(join(directory, name)).some(file => !OUR_REMAINS.test(file))
  return ['log', 'run'].find(isForeign) ?? null
}

/** Five hexadecimal digits that distinguish this instance's namespaces and devices from others on the machine; generated once. */
export function ensureInstanceId(directory: string): string {
  const known = instanceId(directory)
  if (known !== null) return known
  const id = randomBytes(3).toString('hex').slice(0, 5)
  writePrivateFile(join(directory, 'instance'), `${id}\n`)
  return id
}

/** @returns null when the directory was never Krater's */
export function instanceId(directory: string): string | null {
  const file = join(directory, 'instance')
  if (!existsSync(file)) return null
  const id = readFileSync(file, 'utf8').trim()
  if (!/^[0-9a-f]{5}$/.test(id)) throw new ConfigurationError(`${file} must hold five hexadecimal digits.`)
  return id
}
