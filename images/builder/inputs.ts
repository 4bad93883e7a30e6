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
  if (inputsOf(directory) !== digest) return false
  const manifest = readBuildManifest(directory)
  return manifest !== null && (await differenceFrom(manifest, directory)) === null
}

/** Whether a build has written what is in a directory. */
export const hasInputs = (directory: string): boolean => /^[0-9a-f]{64}$/.test(inputsOf(directory) ?? '')

function inputsOf(directory: string): string | null {
  const path = join(directory, INPUTS_FILE)
  return existsSync(path) ? readFileSync(path, 'utf8') : null
}
