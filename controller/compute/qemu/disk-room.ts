import { closeSync, openSync, readSync, statfsSync, statSync } from 'node:fs'
import { open, rename } from 'node:fs/promises'
import { runTool } from '../../network/local/ip-command.js'
import { ComputeUnavailable } from '../driver.js'
import { MachineError } from '../host/machine-error.js'
import { unlessGone } from '../host/unless-gone.js'

const MIB = 1024 * 1024
const MAGIC = 'QFI\xfb'
/** Of the header of a qcow2 file; its size for the machine is the big-endian number at byte 24. */
const HEADER_BYTES = 32

/**
 * Creates the disk of a machine above its image's. It has its name only when it is complete.
 * @returns how many bytes its file may have: a machine that writes all of it needs no more
 */
export async function createDisk(path: string, image: string): Promise<number> {
  const partial = `${path}.new`
  await runTool(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', image, '-F', 'qcow2', partial], '')
  const file = await open(partial, 'r+')
  try {
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(partial, path)
  return fileLimit(sizeForMachine(path))
}

/** The contents, and ample room for the tables that say where they are, which take one byte for some 6,500. Pure. */
const fileLimit = (size: number): number => size + Math.ceil(size / 64) + MIB

/**
 * How much a disk may still grow, in bytes; 0 if it is gone. What the disk says of itself does not count: QEMU can write
 * that, and may be in the hands of a tenant.
 * @param limit how many bytes its file may have
 */
export function mayGrowBy(path: string, limit: number): number {
  const used = unlessGone(() => statSync(path).blocks * 512, null)
  return used === null ? 0 : Math.max(0, limit - used)
}

/** Of a disk that no machine has had yet. */
function sizeForMachine(path: string): number {
  const file = openSync(path, 'r')
  try {
    const header = Buffer.alloc(HEADER_BYTES)
    readSync(file, header, 0, HEADER_BYTES, 0)
    if (header.toString('latin1', 0, 4) !== MAGIC) throw new MachineError(`${path} is not a qcow2 disk.`)
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
