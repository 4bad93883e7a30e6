import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import * as z from 'zod'

const sha256 = z.string().regex(/^[0-9a-f]{64}$/)

/** `manifest.json` of what `npm run images` has built: the image of an amphora, or boxes. Later versions may say more. */
const buildSchema = z.object({
  format: z.literal(1),
  suite: z.string(),
  architecture: z.string(),
  /** Its release. */
  kernel: z.string(),
  node: z.string(),
  packages: z.array(
    z.object({ name: z.string(), version: z.string(), architecture: z.string(), source: z.string(), sha256 }),
  ),
  /** By name; all but the manifest itself and the root file system. */
  files: z.record(z.string().regex(/^[\w.-]+$/), z.object({ bytes: z.int().min(0), sha256 })),
  /** The digest of the root file system, if there is one beside the files. */
  rootfs: sha256.optional(),
})

const manifestSchema = buildSchema.extend({
  /** The sha256 of the disk. */
  id: sha256,
  /** What the kernel needs to be told, beside its console. */
  kernelOptions: z.string(),
  agent: z.object({ version: z.string(), sha256 }),
  rootfs: sha256,
})

/** Of a build. */
export type BuildManifest = z.output<typeof buildSchema>

/** Of the image of an amphora. */
export type Manifest = z.output<typeof manifestSchema>

/** The manifest of the image in a directory; null if there is none, or this version cannot read it. */
export const readManifest = (directory: string): Manifest | null => read(directory, manifestSchema)

/** The same for what a build has written. */
export const readBuildManifest = (directory: string): BuildManifest | null => read(directory, buildSchema)

function read<T>(directory: string, schema: z.ZodType<T>): T | null {
  try {
    return schema.parse(JSON.parse(readFileSync(join(directory, 'manifest.json'), 'utf8')))
  } catch {
    return null
  }
}
