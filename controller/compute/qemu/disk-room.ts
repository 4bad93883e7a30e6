import { closeSync, openSync, readSync, statfsSync, statSync } from 'node:fs'
import { ComputeUnavailable } from '../driver.js'
import { unlessGone } from '../host/unless-gone.js'

const MIB = 1024 * 1024
const MAGIC = 'QFI\xfb'
/** Of the header of a qcow2 file; its size for the machine is the big-endian number at byte 24. */
const HEADER_BYTES = 32

/** How much a qcow2 disk may still grow, in bytes; 0 if it is gone. @throws Error if the file is not one */
export const mayGrowBy = (path: string): number =>
  unlessGone(() => Math.max(0, sizeForMachine(path) - statSync(path).blocks * 512), 0)

function sizeForMachine(path: string): number {
  const file = openSync(path, 'r')
  try {
    const header = Buffer.alloc(HEADER_BYTES)
    readSync(file, header, 0, HEADER_BYTES, 0)
    if (header.toString('latin1', 0, 4) !== MAGIC) throw new Error(`${path} is not a qcow2 disk.`)
    return Number(header.readBigUInt64BE(24))
  } finally {
    closeSync(file)
  }
}

/** Bytes that are left for files below a directory. */
export function freeBytes(directory: string): number {
  const { bavail, bsize } = statfsSync(directory)
  return bavail * bsize
}

/**
 * The room on the disk is promised once only: QEMU would stop every machine when there is none. Pure.
 * @param growth by how many bytes each machine's disk may still grow, with that of the new one
 * @throws ComputeUnavailable if there is not as much
 */
export function requireRoom(growth: readonly number[], free: number): void {
  const total = growth.reduce((sum, one) => sum + one, 0)
  if (total <= free) return
  const [has, needs] = [free, total].map(bytes => Math.ceil(bytes / MIB))
  throw new ComputeUnavailable(
    `The file system of the state directory has ${has} MiB left, and the disks of ${growth.length} virtual machines may grow by ${needs}. Make room there, or remove load balancers.`,
  )
}
