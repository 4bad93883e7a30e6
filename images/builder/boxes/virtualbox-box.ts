import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { EPOCH } from '../root-file-system.js'
import type { Tools } from '../tools.js'
import { machineDescription } from './machine-description.js'

/** Vagrant gives each machine another one, but needs to know which to look for. */
const MAC_ADDRESS = '0800276B7261'
const DISK = 'disk.vmdk'

/**
 * Packs a disk as a box for VirtualBox. The same disk gives the same bytes.
 * @param source the disk, in the format qcow2
 * @param box the path of the file to write
 * @param machine its name, the size of its disk, and what it has unless a Vagrantfile says otherwise
 */
export async function packVirtualBoxBox(
  source: string,
  box: string,
  machine: { name: string; diskMebibytes: number; memoryMebibytes: number; processors: number },
  { run }: Pick<Tools, 'run'>,
): Promise<void> {
  const work = `${box}.parts`
  const inside = (name: string) => join(work, name)
  try {
    await run('mkdir', [work])
    await run('qemu-img', ['convert', '-O', 'vmdk', '-o', 'subformat=streamOptimized', source, inside(DISK)])
    writeFileSync(inside(DISK), withContentId(readFileSync(inside(DISK))))
    writeFileSync(inside('box.ovf'), machineDescription({ ...machine, disk: DISK }))
    writeFileSync(inside('metadata.json'), '{"provider":"virtualbox"}\n')
    writeFileSync(
      inside('Vagrantfile'),
      `Vagrant.configure('2') do |config|\n  config.vm.base_mac = '${MAC_ADDRESS}'\nend\n`,
    )
    const same = ['--sort=name', `--mtime=@${EPOCH}`, '--owner=0', '--group=0', '--numeric-owner', '--mode=644']
    const names = ['box.ovf', 'metadata.json', 'Vagrantfile', DISK]
    await run('tar', ['--create', '--format=ustar', ...same, '--file', box, '--directory', work, ...names])
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

/** Of the contents of any disk here: qemu-img takes another one each time. */
const CONTENT_ID = '6b726174'

/** Sets the id in the description that a VMDK file begins with. @throws Error if there is none */
export function withContentId(vmdk: Buffer): Buffer {
  const at = vmdk.subarray(0, 4096).indexOf('\nCID=')
  if (at < 0) throw new Error('qemu-img wrote a VMDK file without a description.')
  const length = vmdk.subarray(at + 5).indexOf('\n')
  const changed = Buffer.from(vmdk)
  changed.write(CONTENT_ID.slice(0, length).padStart(length, '0'), at + 5)
  return changed
}
