import { execFile } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import { characterDevice, cpioArchive, directory, type Entry, file, link } from './cpio.js'
import { moduleName, modulesInOrder } from './kernel-modules.js'

/** What a machine needs before its own root: under QEMU, and under hypervisors with the disks of older computers. */
const MODULES = {
  virtio: ['virtio_pci', 'virtio_blk', 'virtio_net', 'virtio_rng'],
  other: ['virtio_scsi', 'ata_piix', 'sd_mod'],
}
const APPLETS = ['findfs', 'insmod', 'ln', 'mkdir', 'mount', 'poweroff', 'sh', 'sleep', 'switch_root']

/**
 * Writes the initial file system of the machine whose root this is, as /boot/initrd there.
 * @param checkout the top of the sources
 * @returns the release of the kernel in the root
 */
export async function writeInitialFiles(root: string, checkout: string): Promise<string> {
  const [release] = readdirSync(join(root, 'usr/lib/modules'))
  if (release === undefined) throw new Error('The root file system has no kernel.')
  const init = readFileSync(join(checkout, 'images/initial/init'))
  writeFileSync(join(root, 'boot/initrd'), await initialFiles(root, release, init))
  return release
}

/**
 * Busybox, a few modules and the program `init`.
 * @param init the text of that program
 */
async function initialFiles(root: string, release: string, init: Uint8Array): Promise<Uint8Array> {
  const modules = join(root, 'usr/lib/modules', release)
  const dependencies = readFileSync(join(modules, 'modules.dep'), 'utf8')
  const builtIn = readFileSync(join(modules, 'modules.builtin'), 'utf8')
  const virtio = modulesInOrder(dependencies, builtIn, MODULES.virtio)
  const paths = modulesInOrder(dependencies, builtIn, [...MODULES.virtio, ...MODULES.other])
  const lists = { virtio, other: paths.slice(virtio.length) }
  const fileName = (path: string) => `${moduleName(path)}.ko`
  const contents = await Promise.all(paths.map(path => decompressed(join(modules, path))))
  const entries: Entry[] = [
    ...['bin', 'dev', 'modules', 'proc', 'root', 'sys'].map(directory),
    characterDevice('dev/console', 5, 1),
    characterDevice('dev/null', 1, 3),
    file('bin/busybox', readFileSync(join(root, 'usr/bin/busybox')), 0o755),
    ...APPLETS.map(name => link(`bin/${name}`, 'busybox')),
    file('init', init, 0o755),
    ...paths.map((path, index) => file(`modules/${fileName(path)}`, contents[index] ?? Buffer.alloc(0))),
    ...Object.entries(lists).map(([name, list]) =>
      file(`modules/${name}`, Buffer.from(list.map(path => `${fileName(path)}\n`).join(''))),
    ),
  ]
  return cpioArchive(entries)
}

/** busybox cannot load the compressed modules of newer kernels. */
async function decompressed(path: string): Promise<Uint8Array> {
  if (!basename(path).endsWith('.xz')) return readFileSync(path)
  const { stdout } = await promisify(execFile)('xz', ['--decompress', '--stdout', path], {
    encoding: 'buffer',
    maxBuffer: 64 * 1024 * 1024,
    timeout: 60_000,
  })
  return stdout
}
