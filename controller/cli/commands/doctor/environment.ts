import { readFileSync } from 'node:fs'
import { settings } from '../../../config/settings.js'
import type { RunRecord } from '../../state-directory/run-record.js'

/**
 * The environment with the settings that the running processes were started with. Their variables may be missing in the
 * doctor's own shell, and it would look for them at other ports.
 */
export function environmentOf(running: readonly RunRecord[], own: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const given = running.map(({ identity }) => variablesOf(identity.pid))
  const known = settings.flatMap(({ variable }) => {
    const [value] = given.flatMap(variables => variables.get(variable) ?? [])
    return value === undefined ? [] : [[variable, value]]
  })
  return { ...own, ...Object.fromEntries(known) }
}

/** The variables that a process was started with; none when it has just ended. */
function variablesOf(pid: number): ReadonlyMap<string, string> {
  try {
    const lines = readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0')
    return new Map(lines.map(line => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH' || code === 'EACCES') return new Map()
    throw error
  }
}
