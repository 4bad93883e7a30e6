import { chmodSync, renameSync, rmSync } from 'node:fs'

/** Puts a directory, which all may read, in the place of another one, whose files then go. */
export function replaceDirectory(from: string, to: string): void {
  chmodSync(from, 0o755)
  const old = `${from}.old`
  renameSync(to, old)
  renameSync(from, to)
  rmSync(old, { recursive: true, force: true })
}
