import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Settings } from '../arguments.js'
import { packVirtualBoxBox } from '../boxes/virtualbox-box.js'
import { makeDisk } from '../disk.js'
import { writeInitialFiles } from '../initial-files.js'
import { fetchNode, NODE_VERSION } from '../node.js'
import { replaceDirectory } from '../replace-directory.js'
import { makeBase } from '../root-file-system.js'
import type { Tools } from '../tools.js'
import { makeLabRoot } from './make-root.js'
import { selectLab } from './packages.js'

/** Room for a database, logs, and the images of amphorae; the file grows with what is written. */
const DISK_GIBIBYTES = 16

/**
 * Builds the box of the lab into the directory that the settings name, which then holds nothing else. A build that fails
 * or is interrupted leaves an earlier box there as it was.
 * @param places.root the top of the checkout, with a built Krater
 * @param places.cache keeps what the next build can use again
 * @param krater.services Debian's packages that a controller needs
 * @param krater.packages npm's packages that are not in the bundles of Krater
 */
export async function buildLab(
  settings: Settings,
  places: { root: string; cache: string; tools: Tools },
  krater: { services: readonly string[]; packages: readonly string[] },
): Promise<void> {
  const { root, cache, tools } = places
  const out = resolve(root, settings.out)
  mkdirSync(out, { recursive: true })
  const node = await fetchNode('amd64', cache, tools)
  const selection = selectLab(krater.services, join(root, 'images/lab/customize.sh'))
  const base = await makeBase(settings, selection, { cache, builder: join(root, 'images/builder'), tools })
  const work = mkdtempSync(`${out}.new-`)
  try {
    const inside = (name: string) => join(work, name)
    const files = inside('root')
    const kernel = await tools.step('Root file system', async () => {
      await makeLabRoot(base.archive, files, { checkout: root, node, packages: krater.packages }, tools)
      return await writeInitialFiles(files, root)
    })
    const size = { mebibytes: DISK_GIBIBYTES * 1024, keepsTimes: true }
    await tools.step('Disk', () => makeDisk(files, inside('box.img'), size, tools))
    rmSync(files, { recursive: true })
    await tools.step('Boxes', async () => {
      const machine = { name: 'lab', diskMebibytes: DISK_GIBIBYTES * 1024, memoryMebibytes: 512, processors: 1 }
      await packVirtualBoxBox(inside('box.img'), inside('lab-virtualbox.box'), machine, tools)
      await packLibvirtBox(work, tools)
    })
    const { packages } = base
    const manifest = { format: 1, suite: settings.suite, architecture: 'amd64', kernel, node: NODE_VERSION, packages }
    writeFileSync(inside('manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
    replaceDirectory(work, out)
    tools.say(`The box of the lab is in ${out}.`)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/** Packs the disk in a directory, which is compressed already, as lab-libvirt.box there. */
async function packLibvirtBox(directory: string, { run }: Pick<Tools, 'run'>): Promise<void> {
  const metadata = { provider: 'libvirt', format: 'qcow2', virtual_size: DISK_GIBIBYTES }
  writeFileSync(join(directory, 'metadata.json'), JSON.stringify(metadata))
  const parts = ['metadata.json', 'box.img']
  await run('tar', ['--create', '--directory', directory, '--file', join(directory, 'lab-libvirt.box'), ...parts])
  for (const name of parts) rmSync(join(directory, name))
}
