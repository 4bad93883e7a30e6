import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { ComputeUnavailable } from '../driver.js'
import { DEFAULT_IMAGE_TAG, imageDirectory } from '../images/tags.js'

/** An image whose root file system a machine in namespaces shares instead of its host's. */
export type RootImage = { tag: string; id: string; root: string }

const manifestSchema = z.object({ id: z.string().regex(/^[0-9a-f]{64}$/), architecture: z.string() })

/** Debian's names. */
const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' }

/**
 * The image with a tag, or the standard one.
 * @returns null if there is no standard one: the machine then shares its host's programs
 * @throws ComputeUnavailable if there is none with the tag, or it cannot run here
 */
export function findRootImage(stateDirectory: string, named: string | null): RootImage | null {
  const tag = named ?? DEFAULT_IMAGE_TAG
  const link = imageDirectory(stateDirectory, tag)
  if (!existsSync(join(link, 'manifest.json'))) {
    if (named === null) return null
    throw new ComputeUnavailable(
      `There is no amphora image with the tag ${tag}. Build one with \`npm run images\` and take it with \`krater image import\`.`,
    )
  }
  // The tag may lead to another image while the machine runs.
  const directory = realpathSync(link)
  const root = join(directory, 'rootfs')
  const manifest = manifestSchema.safeParse(JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8')))
  if (!manifest.success || !existsSync(join(root, 'usr'))) {
    throw new ComputeUnavailable(`The amphora image with the tag ${tag} is not complete. Import it again.`)
  }
  const { id, architecture } = manifest.data
  if (architecture !== ARCHITECTURES[process.arch]) {
    throw new ComputeUnavailable(`The amphora image with the tag ${tag} is one for ${architecture}, not for this host.`)
  }
  return { tag, id, root }
}
