import type { Package } from './packages.js'

/** Describes an image: `manifest.json` beside its files. */
export type Manifest = {
  format: 1
  /** The sha256 of the disk. */
  id: string
  suite: string
  architecture: string
  /** Its release. */
  kernel: string
  /** What it needs to be told, beside its console. */
  kernelOptions: string
  node: string
  agent: { version: string; sha256: string }
  packages: Package[]
  /** By name, without the manifest itself. */
  files: Record<string, { bytes: number; sha256: string }>
}
