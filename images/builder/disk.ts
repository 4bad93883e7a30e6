import { closeSync, openSync, rmSync, truncateSync, writeFileSync, writeSync } from 'node:fs'
import { withPartition } from './partition-table.js'
import { EPOCH } from './root-file-system.js'
import type { Tools } from './tools.js'

const DISK_BYTES = 1024 ** 3
/** The first mebibyte holds partition table and boot loader. */
const PARTITION_START = 1024 ** 2
const SIGNATURE = 0x6b726174
const FILE_SYSTEM = {
  // images/initial/init looks for it.
  label: 'krater-root',
  uuid: '5b1f6d0e-7a43-4d0c-9a3e-6b7261746572',
  hashSeed: '0e8f4c52-3d6b-4b5e-8f19-6b7261746572',
}

/**
 * Makes the disk of a machine: a partition table and one partition with the files below `root`.
 * @param disk the path of the file to write, in the format qcow2
 */
export async function makeDisk(root: string, disk: string, { run }: Pick<Tools, 'run'>): Promise<void> {
  const raw = `${disk}.raw`
  try {
    writeFileSync(raw, '')
    truncateSync(raw, DISK_BYTES)
    const env = { E2FSPROGS_FAKE_TIME: String(EPOCH), SOURCE_DATE_EPOCH: String(EPOCH) }
    const extended = [
      ...[`offset=${PARTITION_START}`, `hash_seed=${FILE_SYSTEM.hashSeed}`, 'root_owner=0:0'],
      ...['lazy_itable_init=0', 'lazy_journal_init=0', 'nodiscard'],
    ]
    await run(
      'mke2fs',
      [
        ...['-q', '-F', '-t', 'ext4', '-b', '4096', '-I', '256', '-m', '0', '-e', 'remount-ro', '-J', 'size=8'],
        ...['-O', '^metadata_csum,^orphan_file,^resize_inode', '-L', FILE_SYSTEM.label, '-U', FILE_SYSTEM.uuid],
        ...['-E', extended.join(','), '-d', root, raw, String((DISK_BYTES - PARTITION_START) / 4096)],
      ],
      { env },
    )
    writeStart(raw)
    await run('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', '-c', '-o', 'compression_type=zstd', raw, disk])
  } finally {
    rmSync(raw, { force: true })
  }
}

function writeStart(raw: string): void {
  const file = openSync(raw, 'r+')
  const partition = { start: PARTITION_START, bytes: DISK_BYTES - PARTITION_START }
  try {
    writeSync(file, withPartition(new Uint8Array(512), partition, SIGNATURE), 0, 512, 0)
  } finally {
    closeSync(file)
  }
}
