import { readManifest } from './manifest.js'
import { imageDirectory, imageTags } from './tags.js'

/** By their tags, the ids of the images that a state directory has now. */
export function newestImages(stateDirectory: string): ReadonlyMap<string, string> {
  return new Map(
    imageTags(stateDirectory).flatMap(tag => {
      const manifest = readManifest(imageDirectory(stateDirectory, tag))
      return manifest === null ? [] : [[tag, manifest.id] as const]
    }),
  )
}
