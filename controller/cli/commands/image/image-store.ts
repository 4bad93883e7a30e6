import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  cpSync,
  createReadStream,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { basename, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { promisify } from 'node:util'
import { type Manifest, readManifest } from '../../../compute/images/manifest.js'
import { imageDirectory, imageTags } from '../../../compute/images/tags.js'
import { OperatorError } from '../../operator-error.js'

/**
 * The images of a state directory: for each image a directory `.ID`, and for each tag a link to one. A tag changes by one
 * rename, so a machine that starts at any moment finds a whole image, and a killed command leaves at most a directory
 * that no tag leads to. The next command removes it, unless a machine still runs from it.
 */
const storeOf = (stateDirectory: string) => join(stateDirectory, 'images')

/** What every image has, beside its manifest and its root file system. */
const FILES = ['disk.qcow2', 'kernel', 'initrd'] as const
const ROOT = 'rootfs'
/** The root file system of an image that was on a computer which cannot keep its links and owners. */
const ROOT_ARCHIVE = 'rootfs.tar'

/** Names of directories that a command of this process id is still writing. */
const STAGED = /^\.new-(\d+)$/

/**
 * Copies an image into the store and gives it a tag, which an earlier image may have had.
 * @param from the directory that `npm run images` has written
 * @returns its manifest, and whether the tag led to the same image before
 * @throws OperatorError if it is not a whole image
 */
export async function importImage(
  stateDirectory: string,
  from: string,
  tag: string,
): Promise<{ manifest: Manifest; isKnown: boolean }> {
  const manifest = await checkedManifest(from)
  const store = storeOf(stateDirectory)
  mkdirSync(store, { recursive: true, mode: 0o755 })
  sweep(stateDirectory)
  const target = join(store, `.${manifest.id}`)
  const isKnown = existsSync(target) && linkOf(stateDirectory, tag) === basename(target)
  if (!existsSync(target)) {
    const staged = join(store, `.new-${process.pid}`)
    try {
      for (const name of [...Object.keys(manifest.files), 'manifest.json'])
        cpSync(join(from, name), join(staged, name), COPY)
      if (existsSync(join(from, ROOT))) cpSync(join(from, ROOT), join(staged, ROOT), COPY)
      else await unpack(join(from, ROOT_ARCHIVE), staged)
      renameSync(staged, target)
    } finally {
      rmSync(staged, { recursive: true, force: true })
    }
  }
  const link = join(store, `.new-${process.pid}`)
  symlinkSync(basename(target), link)
  renameSync(link, imageDirectory(stateDirectory, tag))
  sweep(stateDirectory)
  return { manifest, isKnown }
}

/** Links inside an image's root stay as they are. Times matter to nobody, but keep two copies the same. */
const COPY = { recursive: true, verbatimSymlinks: true, preserveTimestamps: true }

/** Everything in it becomes root's, as it was. */
async function unpack(archive: string, directory: string): Promise<void> {
  const words = ['--extract', '--no-same-owner', '--preserve-permissions', '--directory', directory, '--file', archive]
  try {
    await promisify(execFile)('tar', words, { timeout: 300_000 })
  } catch (error) {
    throw new OperatorError(`Cannot unpack ${archive}: ${error instanceof Error ? error.message : error}`)
  }
}

/** The images that tags lead to. A manifest of a newer version, or a damaged one, is null. */
export function listImages(stateDirectory: string): { tag: string; manifest: Manifest | null; importedAt: Date }[] {
  return imageTags(stateDirectory).map(tag => {
    const directory = imageDirectory(stateDirectory, tag)
    return { tag, manifest: readManifest(directory), importedAt: lstatSync(directory).mtime }
  })
}

/** Takes a tag away, and its image unless another tag leads to it. @throws OperatorError if there is no such tag */
export function removeImage(stateDirectory: string, tag: string): void {
  if (linkOf(stateDirectory, tag) === null)
    throw new OperatorError(`There is no image ${tag}. \`krater image list\` lists all.`)
  rmSync(imageDirectory(stateDirectory, tag))
  sweep(stateDirectory)
}

/** The directory that a tag leads to, without the store's own. */
function linkOf(stateDirectory: string, tag: string): string | null {
  const path = imageDirectory(stateDirectory, tag)
  return lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() ? readlinkSync(path) : null
}

/** Removes what killed commands left, and images that neither a tag nor a machine uses. */
function sweep(stateDirectory: string): void {
  const store = storeOf(stateDirectory)
  const used = new Set(imageTags(stateDirectory).map(tag => linkOf(stateDirectory, tag)))
  for (const name of readdirSync(store).filter(name => name.startsWith('.'))) {
    const [, pid] = STAGED.exec(name) ?? []
    const isUsed = pid === undefined ? used.has(name) || isMounted(`/${basename(store)}/${name}/`) : runs(pid)
    if (!isUsed) rmSync(join(store, name), { recursive: true, force: true })
  }
}

const runs = (pid: string): boolean => existsSync(`/proc/${pid}`)

/** Whether a process sees a mount whose source has this in its path: a machine in namespaces that runs from it. */
function isMounted(part: string): boolean {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .some(pid => textOf(`/proc/${pid}/mountinfo`).includes(part))
}

/** @returns '' for a process that has ended */
function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** @throws OperatorError that says what is missing or damaged */
async function checkedManifest(from: string): Promise<Manifest> {
  if (!existsSync(join(from, 'manifest.json'))) {
    throw new OperatorError(`There is no image in ${from}: it has no manifest.json. \`npm run images\` builds one.`)
  }
  const manifest = readManifest(from)
  if (manifest === null) throw new OperatorError(`The manifest.json in ${from} is none that this version can read.`)
  for (const name of new Set([...FILES, ...Object.keys(manifest.files)])) {
    const path = join(from, name)
    const expected = manifest.files[name]
    if (expected === undefined || !existsSync(path))
      throw new OperatorError(`The image in ${from} is not complete: ${name} is missing. Build it again.`)
    if ((await digestOf(path)) !== expected.sha256)
      throw new OperatorError(`The image in ${from} is damaged: ${name} is not what its manifest says. Build it again.`)
  }
  if (![ROOT, ROOT_ARCHIVE].some(name => existsSync(join(from, name))))
    throw new OperatorError(`The image in ${from} is not complete: ${ROOT} is missing. Build it again.`)
  return manifest
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  await pipeline(createReadStream(path), hash)
  return hash.digest('hex')
}
