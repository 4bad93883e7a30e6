const SECTOR = 512
const TABLE = 446
const LINUX = 0x83
const ACTIVE = 0x80
/** Tells that the place by cylinder, head and sector cannot be written: what reads the table uses the sector's number. */
const BEYOND_CYLINDERS = [0xfe, 0xff, 0xff]

/** Where a partition is, in bytes. */
export type Partition = { start: number; bytes: number }

/**
 * Writes a partition table with one active Linux partition into the first sector of a disk.
 * @param sector the sector with the program that boots, or zeros
 * @param signature identifies the disk
 * @returns the new sector
 */
export function withPartition(sector: Uint8Array, { start, bytes }: Partition, signature: number): Uint8Array {
  const table = Buffer.alloc(SECTOR)
  table.set(sector.subarray(0, TABLE - 6))
  table.writeUInt32LE(signature, TABLE - 6)
  table.set([ACTIVE, ...BEYOND_CYLINDERS, LINUX, ...BEYOND_CYLINDERS], TABLE)
  table.writeUInt32LE(start / SECTOR, TABLE + 8)
  table.writeUInt32LE(bytes / SECTOR, TABLE + 12)
  table.writeUInt16LE(0xaa55, SECTOR - 2)
  return table
}
