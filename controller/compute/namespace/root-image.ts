import { join } from 'node:path'
import { findImage } from '../images/find-image.js'
import { DEFAULT_IMAGE_TAG, imageTags } from '../images/tags.js'

/** An image whose root file system a machine in namespaces shares instead of its host's. */
export type RootImage = { tag: string; id: string; root: string }

/**
 * The image with a tag, or the standard one.
 * @returns null if there is no standard one: the machine then shares its host's programs
 * @throws ComputeUnavailable if there is none with the tag, or it cannot run here
 */
export function findRootImage(stateDirectory: string, named: string | null): RootImage | null {
  const tag = named ?? DEFAULT_IMAGE_TAG
  if (named === null && !imageTags(stateDirectory).includes(tag)) return null
  const { id, directory } = findImage(stateDirectory, tag, ['rootfs/usr'])
  return { tag, id, root: join(directory, 'rootfs') }
}
