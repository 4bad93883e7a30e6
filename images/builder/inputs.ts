import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { differenceFrom } from '../../controller/compute/images/contents.js'
import { readBuildManifest } from '../../controller/compute/images/manifest.js'

/** The file beside an image that tells what it was built from. */
export const INPUTS_FILE = '.inputs'

/** A digest of values and of files, and of all files below directories. */
export function inputsDigest(values: unknown, paths: readonly string[]): string {
  const hash = createHash('sha256').update(JSON.stringify(values))
  for (const path of paths.flatMap(filesOf)) hash.update(`\0${path}\0`).update(readFileSync(path))
  return hash.digest('hex')
}

function filesOf(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path]
  return readdirSync(path)
    .sort()
    .flatMap(name => filesOf(join(path, name)))
}

/** Whether a directory has all that its manifest says, built from the inputs with this digest. */
export async function isBuiltFrom(directory: string, digest: string): Promise<boolean> {
  const inputs = join(directory, INPUTS_FILE)
  if (!existsSync(inputs) || readFileSync(inputs, 'utf8') !== digest) return false
  const manifest = readBuildManifest(directory)
  return manifest !== null && (await differenceFrom(manifest, directory)) === null
}
