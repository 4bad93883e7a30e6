import { execFile } from 'node:child_process'
import {
  cpSync,
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
import { promisify } from 'node:util'
import { differenceFrom, ROOT } from '../../../compute/images/contents.js'
import { type Manifest, readManifest } from '../../../compute/images/manifest.js'
import { imageDirectory, imageTags } from '../../../compute/images/tags.js'
import { lockFile } from '../../../process/file-lock.js'
import { OperatorError } from '../../operator-error.js'
import { print } from '../../terminal.js'

/**
 * The images of a state directory: for each image a directory `.ID`, and for each tag a link to one. A whole copy that
 * takes the place of a damaged one is `.ID.2`, and so on. A tag changes by one rename, so a machine that starts at any
 * moment finds a whole image, and a killed command leaves at most a directory that no tag leads to. The next command
 * removes it, unless a machine still runs from it. Only one command at a time changes the store.
 */
const storeOf = (stateDirectory: string) => join(stateDirectory, 'images')

const MANIFEST = 'manifest.json'
/** What every image has, beside its manifest and its root file system. */
const FILES = ['disk.qcow2', 'kernel', 'initrd'] as const
/** The root file system of an image that was on a computer which cannot keep its links and owners. */
const ROOT_ARCHIVE = 'rootfs.tar'

/** What a command is still writing. */
const STAGED = '.new'

/** How long a command waits for another one. */
const TURN_SECONDS = 600

/** For a gigabyte on a slow disk that others use. */
const SYNC_LIMIT_MS = 600_000

/**
 * Copies an image into the store, unless a whole copy of it is there, and gives it a tag, which an earlier image may have
 * had. All tags of a damaged copy then lead to the whole one.
 * @param from the directory that `npm run images` has written
 * @returns its manifest, and whether the tag led to the same image before
 * @throws OperatorError if it is not a whole image
 */
export async function importImage(
  stateDirectory: string,
  from: string,
  tag: string,
): Promise<{ manifest: Manifest; isKnown: boolean }> {
  const manifest = completeManifest(from)
  const store = storeOf(stateDirectory)
  mkdirSync(store, { recursive: true, mode: 0o755 })
  return await inTurn(store, async () => {
    sweep(store)
    const copy = (await wholeCopy(store, from, manifest)) ?? (await addCopy(store, from, manifest))
    const links = linksIn(store)
    const ofDamaged = [...links].filter(([, name]) => isCopy(name, manifest) && name !== copy).map(([other]) => other)
    for (const other of new Set([tag, ...ofDamaged])) lead(store, other, copy)
    await writeThrough(store)
    sweep(store)
    return { manifest, isKnown: links.get(tag) === copy }
  })
}

/** Runs `work` while no other command changes the store. @throws OperatorError if one takes too long */
async function inTurn<T>(store: string, work: () => Promise<T>): Promise<T> {
  let lock = await lockFile(store, 0)
  if (lock === null) {
    print('Another command changes the images; this one waits for it.')
    lock = await lockFile(store, TURN_SECONDS)
  }
  if (lock === null) {
    const minutes = TURN_SECONDS / 60
    throw new OperatorError(`Another command has been changing the images for ${minutes} minutes. Try again later.`)
  }
  try {
    return await work()
  } finally {
    lock.release()
  }
}

const isCopy = (name: string, { id }: Manifest): boolean => name.startsWith(`.${id}`)

/** The copy of an image that has all that its manifest says. */
async function wholeCopy(store: string, from: string, manifest: Manifest): Promise<string | null> {
  const text = readFileSync(join(from, MANIFEST), 'utf8')
  for (const name of readdirSync(store).filter(name => isCopy(name, manifest))) {
    const directory = join(store, name)
    if (textOf(join(directory, MANIFEST)) === text && (await differenceFrom(manifest, directory)) === null) return name
  }
  return null
}

/**
 * @returns the name of the new copy
 * @throws OperatorError if it is not what the manifest says
 */
async function addCopy(store: string, from: string, manifest: Manifest): Promise<string> {
  const staged = join(store, STAGED)
  try {
    for (const name of [...Object.keys(manifest.files), MANIFEST]) cpSync(join(from, name), join(staged, name), COPY)
    if (existsSync(join(from, ROOT))) cpSync(join(from, ROOT), join(staged, ROOT), COPY)
    else await unpack(join(from, ROOT_ARCHIVE), staged)
    const difference = await differenceFrom(manifest, staged)
    if (difference !== null)
      throw new OperatorError(`The image in ${from} is damaged: ${difference}. Build it again with \`npm run images\`.`)
    await writeThrough(staged)
    const name = freeName(store, `.${manifest.id}`)
    renameSync(staged, join(store, name))
    return name
  } finally {
    rmSync(staged, { recursive: true, force: true })
  }
}

function freeName(store: string, name: string): string {
  let free = name
  for (let count = 2; existsSync(join(store, free)); count++) free = `${name}.${count}`
  return free
}

/** Makes a tag lead to an image of the store. */
function lead(store: string, tag: string, copy: string): void {
  const link = join(store, STAGED)
  symlinkSync(copy, link)
  renameSync(link, join(store, tag))
}

/** Until this has ended, a power failure could leave empty files behind names that are there already. */
async function writeThrough(directory: string): Promise<void> {
  await promisify(execFile)('sync', ['--file-system', directory], { timeout: SYNC_LIMIT_MS })
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
export async function removeImage(stateDirectory: string, tag: string): Promise<void> {
  const store = storeOf(stateDirectory)
  const requireTag = () => {
    if (!linksIn(store).has(tag)) throw new OperatorError(`There is no image ${tag}. \`krater image list\` lists all.`)
  }
  // Without an image, there may be no store to lock.
  requireTag()
  await inTurn(store, async () => {
    requireTag()
    rmSync(join(store, tag))
    sweep(store)
  })
}

/** By tags, the names of the directories that they lead to, whether or not these are there. */
function linksIn(store: string): Map<string, string> {
  if (!existsSync(store)) return new Map()
  const links = readdirSync(store, { withFileTypes: true }).filter(
    entry => entry.isSymbolicLink() && !entry.name.startsWith('.'),
  )
  return new Map(links.map(({ name }) => [name, readlinkSync(join(store, name))]))
}

/** Removes what killed commands left, and images that neither a tag nor a machine uses. */
function sweep(store: string): void {
  const used = new Set(linksIn(store).values())
  for (const name of readdirSync(store).filter(name => name.startsWith('.'))) {
    if (!used.has(name) && !isMounted(`/${basename(store)}/${name}/`))
      rmSync(join(store, name), { recursive: true, force: true })
  }
}

/** Whether a process sees a mount whose source has this in its path: a machine in namespaces that runs from it. */
function isMounted(part: string): boolean {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .some(pid => textOf(`/proc/${pid}/mountinfo`)?.includes(part) === true)
}

/** @returns null for a file that is not there, or of a process that has ended */
function textOf(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}

/** @throws OperatorError that says what is missing */
function completeManifest(from: string): Manifest {
  if (!existsSync(join(from, MANIFEST))) {
    throw new OperatorError(`There is no image in ${from}: it has no ${MANIFEST}. \`npm run images\` builds one.`)
  }
  const manifest = readManifest(from)
  if (manifest === null) {
    throw new OperatorError(
      `The ${MANIFEST} in ${from} is none that this version can read. Build the image again with \`npm run images\`.`,
    )
  }
  const names = Object.keys(manifest.files)
  const isThere = (name: string) => existsSync(join(from, name))
  const missing =
    FILES.find(name => !names.includes(name)) ??
    names.find(name => !isThere(name)) ??
    (isThere(ROOT) || isThere(ROOT_ARCHIVE) ? undefined : ROOT)
  if (missing !== undefined) {
    throw new OperatorError(
      `The image in ${from} is not complete: ${missing} is missing. Build it again with \`npm run images\`.`,
    )
  }
  return manifest
}
