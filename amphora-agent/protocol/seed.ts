/** What a virtual machine receives for its first boot, one file each. All but the last three also reach other machines. */
export const SEED_FILES = [
  'host-key',
  'controller-key',
  'operator-key',
  'boot',
  'management-address',
  'hostname',
  /** Of the management interface, in lower case. */
  'management-mac',
  /** The length of the prefix of the management subnet. */
  'management-prefix',
  /** For its resolv.conf. */
  'name-servers',
] as const

export type Seed = Readonly<Record<(typeof SEED_FILES)[number], string>>

/** The first bytes of a seed disk. images/amphora/machine-init.sh looks for them. */
export const SEED_LABEL = 'KRATERSEED'

const BLOCK = 512
/** Of the files on the disk, which only root of the machine reads. */
const MODE = 0o600

/**
 * The contents of a seed disk: a tar archive with a file for each value, behind an empty one named by the label. The
 * disk has no file system and no partition table.
 */
export function seedDisk(seed: Seed): Uint8Array {
  const files = [[SEED_LABEL, ''] as const, ...SEED_FILES.map(name => [name, seed[name]] as const)]
  const blocks = files.flatMap(([name, text]) => {
    const bytes = Buffer.from(text)
    return [header(name, bytes.length), bytes, Buffer.alloc(-bytes.length & (BLOCK - 1))]
  })
  // Two empty blocks end an archive.
  return Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)])
}

/** The block that describes a file, in the format ustar of POSIX. */
function header(name: string, size: number): Buffer {
  const block = Buffer.alloc(BLOCK)
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`
  block.write(name, 0)
  block.write(octal(MODE, 7), 100)
  block.write(octal(0, 7), 108)
  block.write(octal(0, 7), 116)
  block.write(octal(size, 11), 124)
  block.write(octal(0, 11), 136)
  block.write('0ustar\x0000', 156)
  // The sum counts its own field as spaces.
  block.write(' '.repeat(8), 148)
  const sum = block.reduce((total, byte) => total + byte, 0)
  block.write(`${octal(sum, 6)} `, 148)
  return block
}
