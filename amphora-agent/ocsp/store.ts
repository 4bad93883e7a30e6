import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { STATE_DIRECTORY } from '../protocol/paths.js'

/** Responses that were verified, each under the digest of its certificate. On a memory file system. */
const STORE = `${STATE_DIRECTORY}/ocsp`

const pathOf = (digest: string): string => `${STORE}/${digest}.der`

/** A response, and when it was fetched, in milliseconds of Unix time. */
export function readStored(digest: string): { bytes: Buffer; at: number } | null {
  const path = pathOf(digest)
  return existsSync(path) ? { bytes: readFileSync(path), at: statSync(path).mtimeMs } : null
}

export function writeStored(digest: string, bytes: Buffer): void {
  mkdirSync(STORE, { recursive: true, mode: 0o700 })
  writeFileSync(`${pathOf(digest)}.new`, bytes, { mode: 0o600 })
  renameSync(`${pathOf(digest)}.new`, pathOf(digest))
}

/** Deletes the responses of other certificates. */
export function pruneStored(digests: ReadonlySet<string>): void {
  if (!existsSync(STORE)) return
  for (const name of readdirSync(STORE)) {
    if (!digests.has(name.replace(/\.der(\.new)?$/, ''))) rmSync(`${STORE}/${name}`, { force: true })
  }
}
