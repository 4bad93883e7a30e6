import { accessSync, constants, existsSync, readFileSync } from 'node:fs'
import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import { configurationFile } from '../../../config/load.js'
import { requireSearchablePath } from '../../host/checks.js'
import { usesPrivateCluster } from '../../state-directory/database-urls.js'
import { instanceId } from '../../state-directory/instance.js'
import type { Instance } from '../../wiring/instance.js'

/** Checks whether the state directory is set up completely and can be written. */
export function checkState({ directory, config }: Instance): Finding[] {
  const isOurs = existsSync(directory) && instanceId(directory) !== null
  if (!isOurs) return [note('state', `${directory} is not set up yet: \`krater up\` does that`)]
  const readOnly = writeFinding(directory)
  if (readOnly !== null) return [readOnly]
  if (!existsSync(configurationFile(directory))) {
    return [fault('state', `the set-up of ${directory} did not finish`, 'run `krater up`: it continues')]
  }
  if (usesPrivateCluster(config, directory)) requireSearchablePath(directory)
  return [ok('state', `${directory} is set up and writable`)]
}

function writeFinding(directory: string): Finding | null {
  try {
    accessSync(directory, constants.W_OK)
    return null
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EROFS') throw error
    const remedy = `mount -o remount,rw ${mountPointOf(directory, readFileSync('/proc/mounts', 'utf8'))} (if that fails, dmesg says why the kernel made it read-only)`
    return fault('state', `${directory} is on a read-only file system`, remedy)
  }
}

/** The mount point that a path is on. Pure. @param mounts content of /proc/mounts */
export function mountPointOf(path: string, mounts: string): string {
  const points = mounts
    .split('\n')
    .map(line => (line.split(' ')[1] ?? '').replaceAll('\\040', ' '))
    .filter(point => point === '/' || path === point || path.startsWith(`${point}/`))
  return points.reduce((longest, point) => (point.length > longest.length ? point : longest), '/')
}
