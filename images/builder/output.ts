import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { UsageError } from './arguments.js'
import { INPUTS_FILE } from './inputs.js'
import type { Tools } from './tools.js'

/** The file that a complete build has, and no other directory. */
const MANIFEST = 'manifest.json'
const STAGED = /\.new-(\d+)$/

/** Where this build writes what becomes `path` once it is complete. */
export const stagedFor = (path: string): string => `${path}.new-${process.pid}`

/**
 * Removes what builds that were killed left in a directory.
 * @param prefix of the names of what they wrote
 */
export function sweepStaged(directory: string, prefix = ''): void {
  for (const name of readdirSync(directory).filter(found => found.startsWith(prefix))) {
    const [, pid] = STAGED.exec(name) ?? []
    if (pid === undefined || existsSync(`/proc/${pid}`)) continue
    rmSync(join(directory, name), { recursive: true, force: true })
  }
}

/**
 * Makes the directory of a build's results.
 * @param names of the results, beside the manifest
 * @throws UsageError if there are files that no build wrote, which the results would replace
 */
export function prepareOutput(out: string, names: readonly string[]): void {
  mkdirSync(out, { recursive: true })
  const isOurs = [MANIFEST, INPUTS_FILE].some(name => existsSync(join(out, name)))
  const other = names.find(name => existsSync(join(out, name)))
  if (other !== undefined && !isOurs)
    throw new UsageError(`${out} holds another ${other}. Choose another directory with --out, or remove that one.`)
  sweepStaged(dirname(out), basename(out))
}

/**
 * Lets `write` make the results, with the manifest and the digest of their inputs, in a directory that only root may
 * enter, and puts them in the place of earlier ones; other files there stay. A build that fails or is interrupted leaves
 * earlier results as they were.
 */
export async function writeOutput(
  out: string,
  { run }: Pick<Tools, 'run'>,
  write: (work: string) => Promise<void>,
): Promise<void> {
  const work = stagedFor(out)
  rmSync(work, { recursive: true, force: true })
  mkdirSync(work, { mode: 0o700 })
  try {
    await write(work)
    // A power failure could else leave empty files behind names that are there already.
    await run('sync', ['--file-system', work])
    // Results without a manifest are those of a build that was killed in here: the next one replaces them.
    rmSync(join(out, MANIFEST), { force: true })
    const others = readdirSync(work).filter(name => name !== INPUTS_FILE && name !== MANIFEST)
    for (const name of [INPUTS_FILE, ...others, MANIFEST]) {
      rmSync(join(out, name), { recursive: true, force: true })
      renameSync(join(work, name), join(out, name))
    }
    // Everybody may read it, whatever the umask.
    chmodSync(out, 0o755)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}
