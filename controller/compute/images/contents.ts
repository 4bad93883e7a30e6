import { createHash } from 'node:crypto'
import { createReadStream, existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import type { BuildManifest } from './manifest.js'

/** The folder of an image with its root file system. */
export const ROOT = 'rootfs'

/** What a manifest says of these files of a directory. */
export async function describeFiles(directory: string, names: readonly string[]): Promise<BuildManifest['files']> {
  const described = names.map(async name => {
    const path = join(directory, name)
    return [name, { bytes: statSync(path).size, sha256: await digestOf(path) }] as const
  })
  return Object.fromEntries(await Promise.all(described))
}

/**
 * Compares what a build has written with its manifest, byte by byte.
 * @returns the first difference, as in `kernel is missing`; null if there is none
 */
export async function differenceFrom(manifest: BuildManifest, directory: string): Promise<string | null> {
  for (const [name, expected] of Object.entries(manifest.files)) {
    const found = lstatSync(join(directory, name), { throwIfNoEntry: false })
    if (found === undefined) return `${name} is missing`
    const isSame = found.size === expected.bytes && (await digestOf(join(directory, name))) === expected.sha256
    if (!isSame) return `${name} is not what its manifest says`
  }
  const { rootfs } = manifest
  const root = join(directory, ROOT)
  if (rootfs === undefined) return null
  if (!existsSync(root)) return `${ROOT} is missing`
  return digestOfTree(root) === rootfs ? null : `${ROOT} is not what its manifest says`
}

/**
 * A digest of all below a directory: names, kinds, permissions, and what files contain and links lead to. Owners do not
 * count, for all that an image copies becomes root's, nor do times.
 */
export function digestOfTree(root: string): string {
  const hash = createHash('sha256')
  for (const path of pathsBelow(root)) {
    const whole = join(root, path)
    const status = lstatSync(whole)
    // Not digestOf: it takes several times as long for ten thousand small files.
    const digest = () => createHash('sha256').update(readFileSync(whole)).digest('hex')
    const content = status.isSymbolicLink() ? readlinkSync(whole) : status.isFile() ? digest() : ''
    hash.update(JSON.stringify([path, status.mode, content]))
  }
  return hash.digest('hex')
}

/** Paths below a directory, '' for itself, in a fixed order. Follows no link. */
function pathsBelow(root: string, path = ''): string[] {
  const entries = readdirSync(join(root, path), { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))
  const below = entries.flatMap(entry => {
    const inside = path === '' ? entry.name : `${path}/${entry.name}`
    return entry.isDirectory() ? pathsBelow(root, inside) : [inside]
  })
  return [path, ...below]
}

/** @returns the sha256 of a file */
export async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}
