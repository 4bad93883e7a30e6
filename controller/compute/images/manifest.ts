import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'

const sha256 = z.string().regex(/^[0-9a-f]{64}$/)

/** `manifest.json` of an image, which `npm run images` writes. Later versions may say more. */
const manifestSchema = z.object({
  format: z.literal(1),
  /** The sha256 of the disk. */
  id: sha256,
  suite: z.string(),
  architecture: z.string(),
  /** Its release. */
  kernel: z.string(),
  /** What it needs to be told, beside its console. */
  kernelOptions: z.string(),
  node: z.string(),
  agent: z.object({ version: z.string(), sha256 }),
  packages: z.array(
    z.object({ name: z.string(), version: z.string(), architecture: z.string(), source: z.string(), sha256 }),
  ),
  /** By name; all but the manifest itself and the root file system. */
  files: z.record(z.string().regex(/^[\w.-]+$/), z.object({ bytes: z.int().min(0), sha256 })),
})

export type Manifest = z.output<typeof manifestSchema>

/** The manifest of the image in a directory; null if there is none, or this version cannot read it. */
export function readManifest(directory: string): Manifest | null {
  try {
    return manifestSchema.parse(JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8')))
  } catch {
    return null
  }
}
