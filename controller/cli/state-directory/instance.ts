import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigurationError } from '../../options/configuration-error.js'
import { writePrivateFile } from '../../process/private-file.js'

/** PostgreSQL's socket below it must fit into 107 bytes. */
const LONGEST_STATE_DIRECTORY = 70

/**
 * Makes the state directory when it is missing, and its instance id before anything else. Its files are root's alone; the directory itself can be passed through (0711), since
 * PostgreSQL works below it under an account of its own.
 * @throws ConfigurationError in a sentence when it cannot be made or written, or is something else's, such as /var
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

/** What processes leave in a directory without an id: those that were started before the first `krater up` there. */
const OUR_REMAINS = /^((up|api|worker|health-manager)\.(log|log\.1|\d+\.json)|\.writable)$/

/** A folder that has a name of ours but holds what is not ours, as in /var; null when there is none. */
export function foreignFolder(directory: string): string | null {
  const isForeign = (name: string) =>
    existsSync(join(directory, name)) && readdirSync(join(directory, name)).some(file => !OUR_REMAINS.test(file))
  return ['log', 'run'].find(isForeign) ?? null
}

/** Five hexadecimal digits that tell this instance's namespaces and devices from those of others on the machine; made once. */
export function ensureInstanceId(directory: string): string {
  const known = instanceId(directory)
  if (known !== null) return known
  const id = randomBytes(3).toString('hex').slice(0, 5)
  writePrivateFile(join(directory, 'instance'), `${id}\n`)
  return id
}

/** @returns null when this directory has not been a Krater's yet */
export function instanceId(directory: string): string | null {
  const file = join(directory, 'instance')
  if (!existsSync(file)) return null
  const id = readFileSync(file, 'utf8').trim()
  if (!/^[0-9a-f]{5}$/.test(id)) throw new ConfigurationError(`${file} must hold five hexadecimal digits.`)
  return id
}
