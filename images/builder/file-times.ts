/** Those of the file system itself, of its root, and of lost+found. */
const INODES = Array.from({ length: 11 }, (_, index) => `<${index + 1}>`)

/**
 * Commands for debugfs that set the times of files, which otherwise tell when the image was built.
 * @param paths from `/`
 * @param epoch seconds since 1970
 * @throws Error for a path that debugfs cannot be told
 */
export function fileTimes(paths: readonly string[], epoch: number): string {
  const own = INODES.flatMap(inode => ['atime', 'ctime', 'mtime'].map(field => `sif ${inode} ${field} @${epoch}`))
  const others = paths.flatMap(path => ['atime', 'ctime'].map(field => `sif ${quoted(path)} ${field} @${epoch}`))
  const lines = [...own, ...others]
  return lines.map(line => `${line}\n`).join('')
}

function quoted(path: string): string {
  if (/["\\\n]/.test(path)) throw new Error(`A file of the image has a name that debugfs does not take: ${path}`)
  return `"${path}"`
}
