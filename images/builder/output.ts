import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { readBuildManifest } from '../../controller/compute/images/manifest.js'
import { UsageError } from './arguments.js'
import { hasInputs, INPUTS_FILE } from './inputs.js'
import type { Tools } from './tools.js'

const MANIFEST = 'manifest.json'
const STAGED = /^(.*)\.new-(\d+)$/

/** Where this build writes what becomes `path` once it is complete. */
export const stagedFor = (path: string): string => `${path}.new-${process.pid}`

/**
 * Removes what builds that were killed left in a directory.
 * @param of the name of what they were to become; without it, all
 */
export function sweepStaged(directory: string, of?: string): void {
  for (const name of readdirSync(directory)) {
    const [, complete, pid] = STAGED.exec(name) ?? []
    if (complete === undefined || existsSync(`/proc/${pid}`) || (of !== undefined && complete !== of)) continue
    rmSync(join(directory, name), { recursive: true, force: true })
  }
}

/**
 * Makes the directory of a build's results, which all may read, unless it is there.
 * @param names of the results, beside the manifest
 * @throws UsageError if there are files that no build wrote, which the results would replace
 */
export function prepareOutput(out: string, names: readonly string[]): void {
  const found = statSync(out, { throwIfNoEntry: false })
  if (found === undefined) {
    // Whatever the umask of the caller. A new parent folder, which may hold other results, must be readable too.
    const umask = process.umask(0o022)
    mkdirSync(out, { recursive: true })
    process.umask(umask)
  } else if (!found.isDirectory()) {
    throw new UsageError(`${out} is no directory. Choose another one with --out.`)
  } else if (found.dev !== statSync(dirname(out)).dev) {
    throw new UsageError(`${out} is where a file system is mounted. Choose a directory in it with --out.`)
  }
  const isOurs = readBuildManifest(out) !== null || hasInputs(out)
  const other = [MANIFEST, ...names].find(name => existsSync(join(out, name)))
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
    replaceResults(work, out)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/**
 * Only renames, which take no time. Results without a manifest are those of a build that was killed between two of them:
 * the next one makes them again.
 */
function replaceResults(work: string, out: string): void {
  const others = readdirSync(work).filter(name => name !== INPUTS_FILE && name !== MANIFEST)
  const old = join(work, 'old')
  mkdirSync(old)
  const takeAway = (name: string) => existsSync(join(out, name)) && renameSync(join(out, name), join(old, name))
  const put = (name: string) => renameSync(join(work, name), join(out, name))
  takeAway(MANIFEST)
  // Tells the next build that the rest is a build's.
  put(INPUTS_FILE)
  for (const name of others) takeAway(name)
  for (const name of [...others, MANIFEST]) put(name)
}
