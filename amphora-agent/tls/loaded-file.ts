import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import * as z from 'zod'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import type { TlsState } from './plan-update.js'

/**
 * Says which TLS files HAProxy has loaded, by their digests. The files of a configuration change before HAProxy takes
 * them over; if the agent dies between the two, the next one learns from this file that HAProxy is behind.
 */
const FILE = `${STATE_DIRECTORY}/tls-loaded.json`

const stateSchema = z
  .object({ files: z.record(z.string(), z.string()), lists: z.record(z.string(), z.array(z.string())) })
  .nullable()

/** @returns null if what HAProxy has loaded is unknown, undefined without a readable file */
export function readLoaded(): TlsState | null | undefined {
  try {
    return stateSchema.parse(JSON.parse(readFileSync(FILE, 'utf8')))
  } catch {
    return undefined
  }
}

/** @param state null if unknown */
export function writeLoaded(state: TlsState | null): void {
  mkdirSync(STATE_DIRECTORY, { recursive: true })
  writeFileSync(`${FILE}.new`, JSON.stringify(state === null ? null : statesOf(state)), { mode: 0o600 })
  renameSync(`${FILE}.new`, FILE)
}

/** What of a manifest HAProxy has loaded. */
export const statesOf = ({ files, lists }: TlsState): TlsState => ({ files, lists })
