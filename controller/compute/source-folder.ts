import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/**
 * Finds a folder of the sources: above this file in the sources; for the bundle in dist/, in the sources beside it.
 * @param path relative to the top of the sources
 * @throws Error if it is not there
 */
export function sourceFolder(path: string): string {
  const from = dirname(fileURLToPath(import.meta.url))
  for (let folder = from; ; folder = dirname(folder)) {
    const candidate = join(folder, path)
    if (existsSync(candidate)) return candidate
    if (folder === dirname(folder)) throw new Error(`${path} was not found above ${from}.`)
  }
}
