import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { digestOfPem } from '../../x509/material/assemble.js'
import { readReference } from '../../x509/material/reference.js'
import type { HaproxyPart, TlsPart } from '../protocol/desired.js'
import type { MissingMaterial } from '../protocol/messages.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import { challengeCertificatePath } from '../protocol/tls.js'
import { createChallengeCertificate } from './challenge-certificate.js'
import { type KeyManager, MaterialUnavailable } from './key-manager.js'
import { createPlaceholder } from './placeholder.js'

type TlsFile = TlsPart['files'][number]

/** What has been read, each under a name that says what it is. On a memory file system, like all of the agent's state. */
const STORE = `${STATE_DIRECTORY}/tls`

const MANIFEST = 'tls.json'

/** What a directory of configuration holds for TLS. */
export type Manifest = {
  /** SHA-256 of each file's content, by path. */
  files: Record<string, string>
  lists: Record<string, string[]>
  missing: MissingMaterial[]
  /** Names in the store. */
  stored: string[]
}

export const NO_TLS: Manifest = { files: {}, lists: {}, missing: [], stored: [] }

/**
 * Writes HAProxy's TLS files into a directory of configuration: what was read before, else what the key manager gives
 * out, else what the same path held in the former directory, else a placeholder. So a key manager that is away takes no
 * listener down.
 * @param directory of the new configuration @param former of the one before, or null
 */
export async function provideTls(
  keyManager: KeyManager,
  { tls = { files: [], lists: [] }, challenges }: Pick<HaproxyPart, 'tls' | 'challenges'>,
  directory: string,
  former: string | null,
): Promise<Manifest> {
  const manifest: Manifest = { files: {}, lists: {}, missing: [], stored: [] }
  if (tls.files.length > 0) mkdirSync(`${directory}/tls`, { recursive: true, mode: 0o700 })
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
      if ('stored' in held) manifest.stored.push(held.stored)
      else if (!manifest.missing.some(({ ref }) => ref === file.ref))
        manifest.missing.push({ ref: file.ref, reason: held.reason })
      const pem =
        'pem' in held
          ? held.pem
          : (readText(former === null ? null : `${former}/${file.path}`) ?? createPlaceholder(file.kind))
      manifest.files[file.path] = writeFile(`${directory}/${file.path}`, pem)
    }),
  )
  for (const { identifier, digest } of challenges?.tls ?? []) {
    const path = challengeCertificatePath(digest)
    const before = readText(former === null ? null : `${former}/${path}`)
    manifest.files[path] = writeFile(`${directory}/${path}`, before ?? createChallengeCertificate(identifier, digest))
  }
  for (const { path, certificates } of tls.lists) {
    manifest.lists[path] = certificates
    manifest.files[path] = writeFile(`${directory}/${path}`, certificates.map(name => `${name}\n`).join(''))
  }
  writeFile(`${directory}/${MANIFEST}`, JSON.stringify(manifest))
  return manifest
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

type Held = { pem: string; stored: string } | { reason: string }

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
    if (digest !== null && read.digest !== digest) return { reason: 'it has changed since it was last looked up' }
    mkdirSync(STORE, { recursive: true, mode: 0o700 })
    writeFile(`${STORE}/${nameFor(read.digest)}`, read.pem)
    return { pem: read.pem, stored: nameFor(read.digest) }
  } catch (error) {
    if (!(error instanceof MaterialUnavailable)) throw error
    return { reason: error.message }
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
