/** A file, directory, link or device of an archive. */
export type Entry = {
  path: string
  /** Type and permissions, as in stat. */
  mode: number
  /** Of a file, or the target of a symbolic link. */
  contents?: Uint8Array
  /** Of a device. */
  device?: { major: number; minor: number }
}

const FILE_TYPES = { directory: 0o040000, file: 0o100000, link: 0o120000, characters: 0o020000 }

export const directory = (path: string): Entry => ({ path, mode: FILE_TYPES.directory | 0o755 })
export const file = (path: string, contents: Uint8Array, permissions = 0o644): Entry => ({
  path,
  mode: FILE_TYPES.file | permissions,
  contents,
})
export const link = (path: string, target: string): Entry => ({
  path,
  mode: FILE_TYPES.link | 0o777,
  contents: Buffer.from(target),
})
export const characterDevice = (path: string, major: number, minor: number): Entry => ({
  path,
  mode: FILE_TYPES.characters | 0o600,
  device: { major, minor },
})

/** A cpio archive (format newc), as the kernel unpacks it at its start. All belongs to root and is of the year 1970. */
export function cpioArchive(entries: readonly Entry[]): Uint8Array {
  const blocks = [...entries, { path: 'TRAILER!!!', mode: 0 }].map((entry, index) => member(entry, index + 1))
  return padded(Buffer.concat(blocks), 512)
}

function member({ path, mode, contents = Buffer.alloc(0), device }: Entry, inode: number): Buffer {
  const name = Buffer.from(`${path}\0`)
  const [owner, links, modified] = [0, 1, 0]
  const fields = [
    ...[inode, mode, owner, owner, links, modified, contents.length],
    ...[0, 0, device?.major ?? 0, device?.minor ?? 0, name.length, 0],
  ]
  const header = Buffer.from(`070701${fields.map(field => field.toString(16).padStart(8, '0')).join('')}`)
  return Buffer.concat([padded(Buffer.concat([header, name]), 4), padded(contents, 4)])
}

function padded(bytes: Uint8Array, unit: number): Buffer {
  return Buffer.concat([bytes, Buffer.alloc((unit - (bytes.length % unit)) % unit)])
}
