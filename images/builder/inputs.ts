import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

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

/** Whether a directory has all these files, built from the inputs with this digest. */
export function isBuiltFrom(directory: string, digest: string, names: readonly string[]): boolean {
  const inputs = join(directory, INPUTS_FILE)
  return (
    existsSync(inputs) &&
    readFileSync(inputs, 'utf8') === digest &&
    names.every(name => existsSync(join(directory, name)))
  )
}
