import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/** The tag of an image that was imported without one. Machines run it unless their flavor names another. */
export const DEFAULT_IMAGE_TAG = 'amphora'

/** Where a state directory has the image with a tag; it may have none. */
export const imageDirectory = (stateDirectory: string, tag: string): string => join(stateDirectory, 'images', tag)

/** Tags of the images that a state directory has now. */
export function imageTags(stateDirectory: string): string[] {
  const images = join(stateDirectory, 'images')
  if (!existsSync(images)) return []
  return readdirSync(images)
    .filter(tag => !tag.startsWith('.') && existsSync(join(imageDirectory(stateDirectory, tag), 'manifest.json')))
    .sort()
}
