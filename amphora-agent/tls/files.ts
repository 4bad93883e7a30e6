import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { digestOfPem } from '../../x509/material/digest.js'
import { readReference } from '../../x509/material/reference.js'
import type { HaproxyPart, TlsPart } from '../protocol/desired.js'
import type { MissingMaterial } from '../protocol/messages.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import { challengeCertificatePath } from '../protocol/tls.js'
import { createChallengeCertificate } from './challenge-certificate.js'
import { type KeyManager, KeyManagerDown, MaterialUnavailable } from './key-manager.js'
import { createPlaceholder } from './placeholder.js'

type TlsFile = TlsPart['files'][number]

/** What has been read, each under a name that says what it is. On a memory file system, like all of the agent's state. */
const STORE = `${STATE_DIRECTORY}/tls`

const MANIFEST = 'tls.json'

/** What a directory of configuration holds for TLS. */
export type Manifest = {
  /** SHA-256 of each file's content, by path. */
  files: Record<string, string>
  /** Certificates by the path of their list, those in `outgoing` included. */
  lists: Record<string, string[]>
  /** Certificates that left a list, and stay in it while the key manager is away with those that came. */
  outgoing: Record<string, string[]>
  missing: MissingMaterial[]
  /** Names in the store. */
  stored: string[]
}

export const NO_TLS: Manifest = { files: {}, lists: {}, outgoing: {}, missing: [], stored: [] }

/**
 * Writes HAProxy's TLS files into a directory of configuration: what was read before, else what the key manager gives
 * out, else what the same path held in the former directory, else a successor that the controller does not know yet, else a
 * placeholder. So a key manager that is away takes no listener down, and no name: what a list exchanges at that time
 * leaves it once its successors are read.
 * @param directory of the new configuration @param former of the one before, or null
 */
export async function provideTls(
  keyManager: KeyManager,
  { tls = { files: [], lists: [] }, challenges }: Pick<HaproxyPart, 'tls' | 'challenges'>,
  directory: string,
  former: string | null,
): Promise<Manifest> {
  const manifest: Manifest = { files: {}, lists: {}, outgoing: {}, missing: [], stored: [] }
  if (tls.files.length > 0) mkdirSync(`${directory}/tls`, { recursive: true, mode: 0o700 })
  const before = former === null ? NO_TLS : readManifest(former)
  const awaited = new Set<string>()
  const reads = new Map<string, Promise<Held>>()
  const hold = (file: TlsFile): Promise<Held> => {
    const key = `${file.kind} ${file.ref} ${file.digest}`
    const read = reads.get(key) ?? obtain(keyManager, file)
    reads.set(key, read)
    return read
  }
  await Promise.all(
    tls.files.map(async file => {
      const held = await hold(file)
      if ('isAway' in held) awaited.add(file.path)
      if ('stored' in held) manifest.stored.push(held.stored)
      else if (!manifest.missing.some(({ ref }) => ref === file.ref))
        manifest.missing.push({ ref: file.ref, reason: held.reason })
      const pem =
        'pem' in held
          ? held.pem
          : (readText(former === null ? null : `${former}/${file.path}`) ??
            held.successor ??
            createPlaceholder(file.kind))
      manifest.files[file.path] = writeFile(`${directory}/${file.path}`, pem)
    }),
  )
  for (const { identifier, digest } of challenges?.tls ?? []) {
    const path = challengeCertificatePath(digest)
    const held = readText(former === null ? null : `${former}/${path}`)
    manifest.files[path] = writeFile(`${directory}/${path}`, held ?? createChallengeCertificate(identifier, digest))
  }
  for (const { path, certificates } of tls.lists) {
    const outgoing = outgoingOf(before, path, certificates, awaited)
    for (const name of outgoing) {
      const pem = readText(`${former}/${name}`)
      if (pem === null) continue
      manifest.files[name] ??= writeFile(`${directory}/${name}`, pem)
      manifest.outgoing[path] = [...(manifest.outgoing[path] ?? []), name]
    }
    manifest.lists[path] = [...certificates, ...(manifest.outgoing[path] ?? [])]
    manifest.files[path] = writeFile(`${directory}/${path}`, manifest.lists[path].map(name => `${name}\n`).join(''))
  }
  if (former === directory) {
    const left = Object.values(before.outgoing).flat()
    for (const name of left) if (!(name in manifest.files)) rmSync(`${directory}/${name}`, { force: true })
  }
  writeFile(`${directory}/${MANIFEST}`, JSON.stringify(manifest))
  return manifest
}

/**
 * The certificates of a list that stay beyond their time: those that leave with the change that brings one which the key
 * manager, being away, does not give out. What a later change removes goes at once. Pure.
 * @param awaited certificates that wait for the key manager
 */
export function outgoingOf(
  before: Pick<Manifest, 'lists' | 'outgoing'>,
  list: string,
  certificates: readonly string[],
  awaited: ReadonlySet<string>,
): string[] {
  const listed = before.lists[list] ?? []
  const waiting = certificates.filter(name => awaited.has(name))
  if (waiting.length === 0) return []
  const isNew = waiting.some(name => !listed.includes(name))
  return (isNew ? listed : (before.outgoing[list] ?? [])).filter(name => !certificates.includes(name))
}

/** What the directory's TLS files are; none if it has no manifest. */
export function readManifest(directory: string): Manifest {
  const text = readText(`${directory}/${MANIFEST}`)
  return text === null ? NO_TLS : { ...NO_TLS, ...(JSON.parse(text) as Partial<Manifest>) }
}

/** Files that differ from what the manifest says, by path. */
export const changedFiles = (directory: string, { files }: Manifest): string[] =>
  Object.entries(files).flatMap(([path, sha256]) =>
    sha256Of(readText(`${directory}/${path}`) ?? '') === sha256 ? [] : [path],
  )

/** Deletes what no directory needs any more. */
export function pruneStore(manifests: readonly Manifest[]): void {
  const needed = new Set(manifests.flatMap(({ stored }) => stored))
  if (!existsSync(STORE)) return
  for (const name of readdirSync(STORE)) if (!needed.has(name)) rmSync(`${STORE}/${name}`, { force: true })
}

/** What an apply gets for a file. A successor has another digest than it should, as after a renewal. */
type Held = { pem: string; stored: string } | { reason: string; isAway?: true; successor?: string }

async function obtain(keyManager: KeyManager, { ref, kind, digest }: TlsFile): Promise<Held> {
  const target = readReference(ref)
  if (target === null) return { reason: 'it does not refer to a secret or container of the key manager' }
  const nameFor = (found: string) => `${target.kind}-${target.id}-${kind.replace(' ', '-')}-${found}.pem`
  if (digest !== null) {
    const pem = readText(`${STORE}/${nameFor(digest)}`)
    if (pem !== null && digestOfPem(pem) === digest) return { pem, stored: nameFor(digest) }
  }
  try {
    const read = await keyManager.read(ref, kind)
    if (digest !== null && read.digest !== digest)
      return { reason: 'it has changed since it was last looked up', successor: read.pem }
    mkdirSync(STORE, { recursive: true, mode: 0o700 })
    writeFile(`${STORE}/${nameFor(read.digest)}`, read.pem)
    return { pem: read.pem, stored: nameFor(read.digest) }
  } catch (error) {
    if (!(error instanceof MaterialUnavailable)) throw error
    return { reason: error.message, ...(error instanceof KeyManagerDown && { isAway: true }) }
  }
}

/** Readable by root alone, who starts HAProxy. @returns the SHA-256 of the content */
function writeFile(path: string, text: string): string {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  writeFileSync(`${path}.new`, text, { mode: 0o600 })
  renameSync(`${path}.new`, path)
  return sha256Of(text)
}

const readText = (path: string | null): string | null =>
  path !== null && existsSync(path) ? readFileSync(path, 'utf8') : null

const sha256Of = (text: string): string => createHash('sha256').update(text).digest('hex')
