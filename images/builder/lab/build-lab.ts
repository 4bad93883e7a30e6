import { rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { describeFiles } from '../../../controller/compute/images/contents.js'
import type { BuildManifest } from '../../../controller/compute/images/manifest.js'
import type { Settings } from '../arguments.js'
import { packVirtualBoxBox } from '../boxes/virtualbox-box.js'
import { makeDisk } from '../disk.js'
import { writeInitialFiles } from '../initial-files.js'
import { INPUTS_FILE, inputsDigest, isBuiltFrom } from '../inputs.js'
import { fetchNode, NODE_VERSION } from '../node.js'
import { prepareOutput, sweepStaged, writeOutput } from '../output.js'
import { makeBase } from '../root-file-system.js'
import type { Tools } from '../tools.js'
import { filesOfKrater } from './copy-krater.js'
import { makeLabRoot } from './make-root.js'
import { selectLab } from './packages.js'

/** Room for a database, logs, and the images of amphorae; the file grows with what is written. */
const DISK_GIBIBYTES = 16

const BOXES = { libvirt: 'lab-libvirt.box', virtualbox: 'lab-virtualbox.box' }
/** Files of the checkout that a machine of the lab is made from, beside those of Krater. */
const SOURCES = ['images/lab', 'images/initial', 'images/builder', 'controller/compute/images', 'package-lock.json']

/**
 * Builds the boxes of the lab into the directory that the settings name. A build that fails or is interrupted leaves
 * earlier boxes there as they were.
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
  sweepStaged(cache)
  prepareOutput(out, Object.values(BOXES))
  const node = await fetchNode('amd64', cache, tools)
  const selection = selectLab(krater.services, join(root, 'images/lab/customize.sh'))
  const base = await makeBase(settings, selection, { cache, builder: join(root, 'images/builder'), tools })
  // V8's cache differs between two builds of the same sources.
  const program = filesOfKrater(root).filter(path => !path.endsWith('.cache'))
  const inputs = inputsDigest(
    [settings.suite, NODE_VERSION, base.packages],
    [...SOURCES, ...program].map(path => join(root, path)),
  )
  if (await isBuiltFrom(out, inputs)) {
    tools.say(`The boxes in ${out} are up to date.`)
    return
  }
  await writeOutput(out, tools, async work => {
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
      await packVirtualBoxBox(inside('box.img'), inside(BOXES.virtualbox), machine, tools)
      await packLibvirtBox(work, tools)
    })
    const manifest: BuildManifest = {
      ...{ format: 1, suite: settings.suite, architecture: 'amd64', kernel, node: NODE_VERSION },
      packages: base.packages,
      files: await describeFiles(work, Object.values(BOXES)),
    }
    writeFileSync(inside('manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
    writeFileSync(inside(INPUTS_FILE), inputs)
  })
  tools.say(`The boxes of the lab are in ${out}.`)
}

/** Packs the disk in a directory, which is compressed already, as the box for libvirt there. */
async function packLibvirtBox(directory: string, { run }: Pick<Tools, 'run'>): Promise<void> {
  const metadata = { provider: 'libvirt', format: 'qcow2', virtual_size: DISK_GIBIBYTES }
  writeFileSync(join(directory, 'metadata.json'), JSON.stringify(metadata))
  const parts = ['metadata.json', 'box.img']
  await run('tar', ['--create', '--directory', directory, '--file', join(directory, BOXES.libvirt), ...parts])
  for (const name of parts) rmSync(join(directory, name))
}
