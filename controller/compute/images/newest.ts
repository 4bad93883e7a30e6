import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { imageDirectory, imageTags } from './tags.js'

const manifest = z.object({ id: z.string().regex(/^[0-9a-f]{64}$/) })

/** By their tags, the ids of the images that a state directory has now. */
export function newestImages(stateDirectory: string): ReadonlyMap<string, string> {
  return new Map(
    imageTags(stateDirectory).map(tag => {
      const file = join(imageDirectory(stateDirectory, tag), 'manifest.json')
      return [tag, manifest.parse(JSON.parse(readFileSync(file, 'utf8'))).id]
    }),
  )
}
