import { closeSync, openSync, readdirSync, rmSync, statfsSync, statSync, truncateSync, writeSync } from 'node:fs'
import { LOG_DIRECTORY, STATE_DIRECTORY } from '../protocol/paths.js'

/** Space kept in reserve, so that the agent can continue when the disk is full. */
const RESERVE = `${STATE_DIRECTORY}/reserve`
const RESERVE_BYTES = 1024 * 1024
/** With less free space than this, the disk counts as full. */
const FULL_BYTES = 512 * 1024

/** Directories without anything that the amphora needs. */
const EXPENDABLE = ['/tmp', '/var/tmp', '/var/log', '/root']

export type Disk = {
  /** Keeps the reserve while there is space. On a full disk, frees what is expendable first, and the reserve last. */
  check: () => { full: boolean; cleared: boolean }
}

export function createDisk(): Disk {
  let reservedBytes = 0
  return {
    check: () => {
      if (freeBytes() >= FULL_BYTES) {
        if (reservedBytes < RESERVE_BYTES || !statSync(RESERVE, { throwIfNoEntry: false }))
          reservedBytes = createReserve()
        return { full: reservedBytes < RESERVE_BYTES, cleared: false }
      }
      deleteExpendable()
      if (freeBytes() >= FULL_BYTES) return { full: false, cleared: true }
      rmSync(RESERVE, { force: true })
      reservedBytes = 0
      return { full: true, cleared: false }
    },
  }
}

function freeBytes(): number {
  const { bavail, bsize } = statfsSync(STATE_DIRECTORY)
  return bavail * bsize
}

/** @returns the size of the reserve: 0 if creating it would make the disk count as full */
function createReserve(): number {
  if (freeBytes() < RESERVE_BYTES + 2 * FULL_BYTES) return 0
  const file = openSync(RESERVE, 'w', 0o600)
  try {
    return writeSync(file, Buffer.alloc(RESERVE_BYTES))
  } catch {
    return 0
  } finally {
    closeSync(file)
  }
}

/** Deletes logs and temporary files on this file system; those on others would free nothing here. */
function deleteExpendable(): void {
  const device = statSync(STATE_DIRECTORY).dev
  const isHere = (path: string) => statSync(path, { throwIfNoEntry: false })?.dev === device
  for (const directory of EXPENDABLE.filter(isHere)) {
    for (const name of readdirSync(directory)) rmSync(`${directory}/${name}`, { recursive: true, force: true })
  }
  for (const name of readdirSync(LOG_DIRECTORY)) truncateSync(`${LOG_DIRECTORY}/${name}`)
}
