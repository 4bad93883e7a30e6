import { execFile } from 'node:child_process'
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import * as z from 'zod'
import type { Configuration } from '../../config/schema.js'
import { removeLeftovers } from '../../process/leftovers.js'
import { writePrivateFile } from '../../process/private-file.js'
import { withTemporaryDirectory } from '../../process/temporary-directory.js'
import { authorityCertificateFile } from '../api-tls/authority.js'
import { OperatorError } from '../operator-error.js'
import { auditHeadFile, keyFiles } from './keys.js'
import { passwordsFile } from './passwords.js'

const run = promisify(execFile)

const manifestSchema = z.strictObject({
  format: z.literal(1),
  /** Of the Krater that made the bundle. */
  version: z.string(),
  id: z.uuid(),
  name: z.string(),
  address: z.string(),
  /** Paths of the files that the database's URL names, by their names in the bundle. */
  databaseFiles: z.record(z.string().regex(/^database-\d+$/), z.string()),
})

/** What another controller host needs, besides the files. */
export type BundleManifest = z.output<typeof manifestSchema>

/** A bundle: its manifest, krater.yaml, and the files by their names in it. */
export type HostBundle = { manifest: BundleManifest; settings: string; files: ReadonlyMap<string, Buffer> }

const MANIFEST = 'manifest.json'
const SETTINGS = 'krater.yaml'
const NAME = /^[A-Za-z0-9][A-Za-z0-9.-]*$/

/** Where the files of a bundle are in a state directory, by their names in the bundle. */
export function bundledFiles(config: Configuration, directory: string): Map<string, string> {
  const keys = Object.entries(keyFiles(config, directory)).flatMap(([name, path]): [string, string][] =>
    path === null ? [] : [[name, path]],
  )
  return new Map([
    ...keys,
    ...keys
      .filter(([name]) => name.endsWith('Ssh'))
      .map(([name, path]): [string, string] => [`${name}.pub`, `${path}.pub`]),
    ['passwords', passwordsFile(directory)],
    ['apiAuthorityCertificate', authorityCertificateFile(directory)],
    ['auditHead', auditHeadFile(config, directory)],
  ])
}

/**
 * Writes a bundle to a file.
 * @param file a path that may be written to, which nobody else can read
 * @param workDirectory a directory that only root can read, for the time of the call
 */
export async function packBundle(
  file: string,
  { manifest, settings, files }: HostBundle,
  workDirectory: string,
): Promise<void> {
  await withFiles(workDirectory, async temporary => {
    const put = (name: string, content: string | Buffer) =>
      writeFileSync(join(temporary, name), content, { mode: 0o600, flag: 'wx' })
    put(MANIFEST, `${JSON.stringify(manifest, null, 2)}\n`)
    put(SETTINGS, settings)
    for (const [name, content] of files) put(name, content)
    const names = readdirSync(temporary).sort()
    await run('tar', ['--owner=0', '--group=0', '-C', temporary, '-cf', file, '--', ...names], { timeout: 60_000 })
  })
}

/**
 * Reads a bundle. @param workDirectory a directory that only root can read, for the time of the call
 * @throws OperatorError when the file is none
 */
export async function unpackBundle(file: string, workDirectory: string): Promise<HostBundle> {
  if (!existsSync(file))
    throw new OperatorError(`There is no file ${file}. \`krater controller add\` on another host makes it.`)
  return withFiles(workDirectory, async temporary => {
    const isNoBundle = new OperatorError(
      `${file} is no bundle of a controller host, or it is damaged. \`krater controller add\` makes one.`,
    )
    const options = ['--no-same-owner', '--no-same-permissions', '-C', temporary, '-xf', file]
    await run('tar', options, { timeout: 60_000 }).catch(() => {
      throw isNoBundle
    })
    const names = readdirSync(temporary)
    const isPlain = (name: string) => NAME.test(name) && lstatSync(join(temporary, name)).isFile()
    if (!names.every(isPlain)) throw isNoBundle
    const contents = new Map(names.map(name => [name, readFileSync(join(temporary, name))]))
    const [manifest, settings] = [contents.get(MANIFEST), contents.get(SETTINGS)]
    if (manifest === undefined || settings === undefined) throw isNoBundle
    contents.delete(MANIFEST)
    contents.delete(SETTINGS)
    const parsed = manifestSchema.safeParse(parseOrNull(manifest.toString()))
    if (!parsed.success) throw isNoBundle
    return { manifest: parsed.data, settings: settings.toString(), files: contents }
  })
}

/** Runs `work` with a directory for a bundle's files, after removing those that killed commands left: keys are in them. */
function withFiles<T>(workDirectory: string, work: (directory: string) => Promise<T>): Promise<T> {
  removeLeftovers(workDirectory, 'bundle-', 'all')
  return withTemporaryDirectory(join(workDirectory, `bundle-${process.pid}-`), work)
}

function parseOrNull(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

/** Where a file that the database's URL names is on the other host. */
export const databaseFileIn = (directory: string, name: string): string => join(directory, 'keys', basename(name))

/** Writes files of a bundle to their places. */
export function placeFiles(files: ReadonlyMap<string, Buffer>, places: ReadonlyMap<string, string>): void {
  for (const [name, content] of files) {
    const path = places.get(name)
    if (path === undefined) continue
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    writePrivateFile(path, content.toString())
  }
}
