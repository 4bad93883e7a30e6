import type { Manifest } from '../../../controller/compute/images/manifest.js'

/** The text of an image's manifest.json, for this host's processors. */
export const imageManifest = (own: Partial<Manifest> = {}): string =>
  JSON.stringify({
    format: 1,
    id: 'ab'.repeat(32),
    suite: 'bookworm',
    architecture: process.arch === 'x64' ? 'amd64' : process.arch,
    kernel: '6.1.0-40-cloud-amd64',
    kernelOptions: 'quiet',
    node: '20.20.2',
    agent: { version: '0.1.0', sha256: 'cd'.repeat(32) },
    packages: [],
    files: {},
    rootfs: 'ef'.repeat(32),
    ...own,
  } satisfies Manifest)
