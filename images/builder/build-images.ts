import { copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { describeFiles, digestOf, digestOfTree, ROOT } from '../../controller/compute/images/contents.js'
import type { Manifest } from '../../controller/compute/images/manifest.js'
import type { Settings } from './arguments.js'
import { billOfMaterials, debianPart, lockedParts, npmPart, type PackageLock } from './bill-of-materials.js'
import { KERNEL_OPTIONS, makeDisk } from './disk.js'
import { writeInitialFiles } from './initial-files.js'
import { INPUTS_FILE, inputsDigest, isBuiltFrom } from './inputs.js'
import { fetchNode, NODE_PACKAGES, NODE_VERSION } from './node.js'
import { prepareOutput, sweepStaged, writeOutput } from './output.js'
import { AMPHORA } from './packages.js'
import { type Base, EPOCH, makeBase, makeRoot, settleTimes } from './root-file-system.js'
import type { Tools } from './tools.js'

/** Space for logs and upgrades, beside half of it for programs. */
const DISK_MEBIBYTES = 1024

/** Beside the root file system and the manifest. */
const FILES = ['disk.qcow2', 'kernel', 'initrd', 'sbom.cdx.json']

/**
 * Builds the image into the directory that the settings name. A build that fails or is interrupted leaves an earlier image
 * there as it was.
 * @param places.root the top of the checkout, with a built agent
 * @param places.cache keeps what the next build can use again
 */
export async function buildImages(
  settings: Settings,
  places: { root: string; cache: string; tools: Tools },
): Promise<void> {
  const { root, cache, tools } = places
  const out = resolve(root, settings.out)
  const agent = join(root, 'dist/agent.js')
  sweepStaged(cache)
  prepareOutput(out, [...FILES, ROOT])
  const node = await fetchNode('amd64', cache, tools)
  const base = await makeBase(settings, AMPHORA, { cache, builder: join(root, 'images/builder'), tools })
  const ours = ['images/amphora', 'images/initial', 'images/builder', 'controller/compute/images']
  const sources = [...ours, 'dist/agent.js', 'package-lock.json']
  const inputs = inputsDigest(
    [settings.suite, NODE_VERSION, base.packages],
    sources.map(path => join(root, path)),
  )
  if (await isBuiltFrom(out, inputs)) {
    tools.say(`The image in ${out} is up to date.`)
    return
  }
  await writeOutput(out, tools, async work => {
    const inside = (name: string) => join(work, name)
    const rootfs = inside(ROOT)
    const release = await tools.step('Root file system', async () => {
      await makeRoot(base, rootfs, { files: join(root, 'images/amphora'), node, agent }, tools)
      const release = await writeInitialFiles(rootfs, root)
      for (const [name, from] of [
        ['initrd', 'initrd'],
        ['kernel', 'vmlinuz'],
      ] as const)
        copyFileSync(join(rootfs, 'boot', from), inside(name))
      await settleTimes(rootfs, tools)
      return release
    })
    await tools.step('Disk', () => makeDisk(rootfs, inside('disk.qcow2'), { mebibytes: DISK_MEBIBYTES }, tools))
    writeFileSync(inside('sbom.cdx.json'), materials(root, base, settings))
    const files = await describeFiles(work, FILES)
    const manifest: Manifest = {
      format: 1,
      id: files['disk.qcow2']?.sha256 ?? '',
      suite: settings.suite,
      architecture: 'amd64',
      kernel: release,
      kernelOptions: KERNEL_OPTIONS,
      node: NODE_VERSION,
      agent: { version: agentVersion(root), sha256: await digestOf(agent) },
      packages: base.packages,
      files,
      rootfs: digestOfTree(rootfs),
    }
    writeFileSync(inside('manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
    writeFileSync(inside(INPUTS_FILE), inputs)
  })
  tools.say(`The image is in ${out}.`)
}

/** What the image consists of. The boot loader is that of the machine that builds. */
function materials(root: string, base: Base, { suite }: Settings): string {
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as PackageLock
  const parts = [
    ...base.packages.map(found => debianPart(found, suite)),
    npmPart(NODE_PACKAGES.amd64.name, NODE_VERSION, 'application'),
    npmPart('@krater/amphora-agent', agentVersion(root), 'application'),
    ...lockedParts(lock, 'amphora-agent'),
  ]
  return billOfMaterials('krater-amphora', parts, EPOCH)
}

function agentVersion(root: string): string {
  const { version } = JSON.parse(readFileSync(join(root, 'amphora-agent/package.json'), 'utf8')) as { version: string }
  return version
}
