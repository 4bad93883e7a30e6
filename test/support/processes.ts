import { readFileSync } from 'node:fs'

/** The words of a process, each followed by a NUL character; empty if it has ended. */
export function commandOf(pid: number | string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}
