import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'
import { ComputeUnavailable } from '../driver.js'

/** An image in the store, with what a virtual machine boots from. */
export type Image = { tag: string; id: string; disk: string; kernel: string; initrd: string }

const manifestSchema = z.object({ id: z.string().regex(/^[0-9a-f]{64}$/) })

/** @param directory of the image @throws ComputeUnavailable if it is not there or not complete */
export function findImage(directory: string, tag: string): Image {
  const inside = (file: string) => join(directory, file)
  const image = { tag, disk: inside('disk.qcow2'), kernel: inside('kernel'), initrd: inside('initrd') }
  if (!existsSync(inside('manifest.json'))) {
    throw new ComputeUnavailable(
      `There is no image ${tag} for virtual machines. Build one with \`npm run images\` and take it with \`krater image import\`.`,
    )
  }
  const missing = [image.disk, image.kernel, image.initrd].filter(file => !existsSync(file))
  if (missing.length > 0) throw new ComputeUnavailable(`The image ${tag} is not complete: ${missing.join(', ')}.`)
  const manifest = manifestSchema.safeParse(JSON.parse(readFileSync(inside('manifest.json'), 'utf8')))
  if (!manifest.success) throw new ComputeUnavailable(`The image ${tag} has a manifest without an id.`)
  return { ...image, id: manifest.data.id }
}
