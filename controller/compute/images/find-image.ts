import { existsSync, realpathSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { ComputeUnavailable } from '../driver.js'
import { readManifest } from './manifest.js'
import { imageDirectory } from './tags.js'

/** An image in the store. */
export type Image = {
  tag: string
  id: string
  /** Where its files are: the tag may lead to another image later. */
  directory: string
  /** What its kernel needs to be told, beside its console. */
  kernelOptions: string
}

/** Debian's names of processors. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' }

/**
 * The image with a tag.
 * @param needed paths inside it that a machine needs
 * @throws ComputeUnavailable if there is none, or it cannot run here
 */
export function findImage(stateDirectory: string, tag: string, needed: readonly string[]): Image {
  const link = imageDirectory(stateDirectory, tag)
  if (!existsSync(join(link, 'manifest.json'))) {
    throw new ComputeUnavailable(
      `There is no amphora image with the tag ${tag}. Build one with \`npm run images\` and take it with \`krater image import\`.`,
    )
  }
  const directory = realpathSync(link)
  const manifest = readManifest(directory)
  const missing = needed.flatMap(path => lackOf(directory, path, manifest?.files[path]?.bytes))
  if (manifest === null || missing.length > 0) {
    const lacks = manifest === null ? 'a manifest that can be read' : missing.join(', ')
    throw new ComputeUnavailable(
      `The amphora image with the tag ${tag} is not complete: it lacks ${lacks}. Import it again.`,
    )
  }
  const { id, architecture, kernelOptions } = manifest
  if (architecture !== ARCHITECTURES[process.arch]) {
    throw new ComputeUnavailable(`The amphora image with the tag ${tag} is one for ${architecture}, not for this host.`)
  }
  return { tag, id, directory, kernelOptions }
}

/** @param bytes how long it must be, if the manifest says that. Its digest would take a second at each start. */
function lackOf(directory: string, path: string, bytes: number | undefined): string[] {
  const found = statSync(join(directory, path), { throwIfNoEntry: false })
  if (found === undefined) return [path]
  return bytes === undefined || found.size === bytes ? [] : [`a part of ${path}`]
}
