import { realpathSync, statSync } from 'node:fs'
import { MachineError } from './machine-error.js'

/** Permissions for others that files shared with machines need. */
export const READABLE = 0o004
export const EXECUTABLE = 0o005

/** A file's real path. @throws MachineError if a machine, an unprivileged user on the host, cannot use it */
export function shareable(file: string, mode: number): string {
  const path = realpathSync(file)
  if ((statSync(path).mode & mode) !== mode)
    throw new MachineError(`Amphorae may not use ${path}: run chmod o+rX on it.`)
  return path
}
