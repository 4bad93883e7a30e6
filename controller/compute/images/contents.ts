import { createHash } from 'node:crypto'
import { createReadStream, lstatSync, statSync } from 'node:fs'
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
  return null
}

/** @returns the sha256 of a file */
export async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}
