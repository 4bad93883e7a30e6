import { closeSync, openSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { fileTimes } from './file-times.js'
import { withPartition } from './partition-table.js'
import { EPOCH } from './root-file-system.js'
import type { Tools } from './tools.js'

const MEBIBYTE = 1024 ** 2
const SECTOR = 512
const BLOCK = 4096
/** The first mebibyte holds partition table and boot loader. */
const PARTITION_START = MEBIBYTE
/** Any numbers, the same for each build. */
const [SIGNATURE, UUID, HASH_SEED] = [
  0x6b726174,
  '5b1f6d0e-7a43-4d0c-9a3e-6b7261746572',
  '0e8f4c52-3d6b-4b5e-8f19-6b7261746572',
]

/** Of the file system; images/initial/init looks for it. */
export const FILE_SYSTEM_LABEL = 'krater-root'

/**
 * What the kernel is told by the disk's boot loader, and by a hypervisor. The timer of a machine that is emulated beside
 * other work ticks too late for the kernel's check, which then stops the boot: "8254 timer not connected to IO-APIC".
 * The kernel's tests of its own ciphers, which nothing in a machine uses, take a sixth of a second there.
 */
export const KERNEL_OPTIONS = 'quiet net.ifnames=0 audit=0 random.trust_cpu=on no_timer_check cryptomgr.notests panic=1'

/** The time, and the order of names, for the tools of the file system. */
const FIXED = { E2FSPROGS_FAKE_TIME: String(EPOCH), LC_ALL: 'C' }

const GRUB = '/usr/lib/grub/i386-pc'
const GRUB_MODULES = ['biosdisk', 'part_msdos', 'ext2', 'linux']
/** The first disk of the computer is the one that it boots from. */
const GRUB_SCRIPT = `set root=(hd0,msdos1)
linux /boot/vmlinuz console=tty0 console=ttyS0 ${KERNEL_OPTIONS}
initrd /boot/initrd
boot
`

/**
 * Makes the disk of a machine: boot loader, partition table and one partition with the files below `root`. A computer
 * with a BIOS boots it by /boot/vmlinuz and /boot/initrd.
 * @param disk the path of the file to write, in the format qcow2
 * @param mebibytes the size of the disk
 * @param keepsTimes the files keep the times that this build gave them, so another one differs
 */
export async function makeDisk(
  root: string,
  disk: string,
  { mebibytes, keepsTimes = false }: { mebibytes: number; keepsTimes?: boolean },
  { run }: Pick<Tools, 'run'>,
): Promise<void> {
  const raw = `${disk}.raw`
  const partition = { start: PARTITION_START, bytes: mebibytes * MEBIBYTE - PARTITION_START }
  const work = [raw, `${disk}.times`, `${disk}.grub`, `${disk}.core`] as const
  const [, times, script, core] = work
  try {
    writeFileSync(raw, '')
    truncateSync(raw, mebibytes * MEBIBYTE)
    await makeFileSystem(root, raw, partition.bytes / BLOCK, run)
    if (!keepsTimes) {
      // mke2fs copies times that no program can set beforehand.
      writeFileSync(times, fileTimes(filesBelow(root), EPOCH))
      await setTimes(times, `${raw}?offset=${PARTITION_START}`, run)
    }
    writeFileSync(script, GRUB_SCRIPT)
    await run('grub-mkimage', [
      ...['--directory', GRUB, '--format', 'i386-pc', '--prefix', '/boot/grub', '--config', script, '--output', core],
      ...GRUB_MODULES,
    ])
    writeStart(raw, readFileSync(core), withPartition(readFileSync(join(GRUB, 'boot.img')), partition, SIGNATURE))
    await run('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', '-c', '-o', 'compression_type=zstd', raw, disk])
  } finally {
    for (const path of work) rmSync(path, { force: true })
  }
}

async function makeFileSystem(root: string, raw: string, blocks: number, run: Tools['run']): Promise<void> {
  const extended = [
    ...[`offset=${PARTITION_START}`, `hash_seed=${HASH_SEED}`, 'root_owner=0:0'],
    ...['lazy_itable_init=0', 'lazy_journal_init=0', 'nodiscard'],
  ]
  const words = [
    ...['-q', '-F', '-t', 'ext4', '-b', String(BLOCK), '-I', '256', '-m', '0', '-e', 'remount-ro', '-J', 'size=8'],
    ...['-O', '^metadata_csum,^orphan_file,^resize_inode', '-L', FILE_SYSTEM_LABEL, '-U', UUID],
    ...['-E', extended.join(','), '-d', root, raw, String(blocks)],
  ]
  await run('mke2fs', words, { env: FIXED })
}

/** Without debugfs's output, which repeats every command. */
const SET_TIMES = 'exec debugfs -w -f "$0" "$1" >/dev/null'

const setTimes = (commands: string, fileSystem: string, run: Tools['run']) =>
  run('sh', ['-c', SET_TIMES, commands, fileSystem], { env: FIXED })

/** Paths from `/` of all below a directory, in a fixed order. Follows no link. */
function filesBelow(root: string, path = ''): string[] {
  const entries = readdirSync(join(root, path), { withFileTypes: true })
  const paths = entries.flatMap(entry => {
    const inside = `${path}/${entry.name}`
    return entry.isDirectory() ? [inside, ...filesBelow(root, inside)] : [inside]
  })
  return paths.sort()
}

/**
 * Writes what the BIOS runs. GRUB's first sector loads the second, which knows how long the rest is.
 * @throws Error if it does not fit before the partition
 */
function writeStart(raw: string, core: Uint8Array, sector: Uint8Array): void {
  if (SECTOR + core.length > PARTITION_START) throw new Error(`The boot loader is too long: ${core.length} bytes.`)
  const file = openSync(raw, 'r+')
  try {
    writeSync(file, sector, 0, SECTOR, 0)
    writeSync(file, core, 0, core.length, SECTOR)
  } finally {
    closeSync(file)
  }
}
