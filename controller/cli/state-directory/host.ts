import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import * as z from 'zod'
import type { HostSettings } from '../../hosts/options.js'
import { ConfigurationError } from '../../options/configuration-error.js'
import { makePrivateFile, writePrivateFile } from '../../process/private-file.js'

const recordSchema = z.strictObject({
  id: z.uuid(),
  /** Whether the database knew it once: then it is not added again by itself. */
  registered: z.boolean(),
})

/** Which controller host this state directory is. */
export type HostRecord = z.output<typeof recordSchema>

const fileIn = (directory: string): string => join(directory, 'host')

/** Null before the first start. @throws ConfigurationError when the file cannot be understood */
export function readHostRecord(directory: string): HostRecord | null {
  const file = fileIn(directory)
  if (!existsSync(file)) return null
  try {
    return recordSchema.parse(JSON.parse(readFileSync(file, 'utf8')))
  } catch {
    throw new ConfigurationError(`${file} is damaged. Restore it from a backup, or remove it to add this host anew.`)
  }
}

/** Chooses an id once. Several processes may do so concurrently. */
export function ensureHostRecord(directory: string): HostRecord {
  const record = { id: randomUUID(), registered: false }
  if (readHostRecord(directory) === null) makePrivateFile(fileIn(directory), `${JSON.stringify(record)}\n`)
  return readHostRecord(directory) ?? record
}

export function writeHostRecord(directory: string, record: HostRecord): void {
  writePrivateFile(fileIn(directory), `${JSON.stringify(record)}\n`)
}

/** The name of this controller host. */
export const hostNameOf = ({ name }: HostSettings): string => name ?? hostname()
