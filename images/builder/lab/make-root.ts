import { chmodSync, chownSync, cpSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { FILE_SYSTEM_LABEL } from '../disk.js'
import type { Tools } from '../tools.js'
import { copyKrater } from './copy-krater.js'

/** What belongs to one machine, and what only the installation of packages needs. */
const REMOVED = [
  ...['etc/.pwd.lock', 'etc/apt/apt.conf.d/99mmdebstrap', 'etc/dpkg/dpkg.cfg.d/99mmdebstrap', 'etc/resolv.conf'],
  // systemd-resolved keeps the name servers of the computer that builds.
  'etc/.resolv.conf.systemd-resolved.bak',
  ...['var/lib/dbus/machine-id', 'var/lib/systemd/random-seed', 'var/cache/ldconfig/aux-cache'],
]
const EMPTIED = ['dev', 'run', 'tmp', 'var/backups', 'var/lib/apt/lists', 'var/tmp']
/** Of Vagrant's account, which customize.sh adds. */
const VAGRANT_ID = 1000

/** The parts of a machine of the lab that are not Debian's. */
export type LabParts = {
  /** The top of the checkout, with a built Krater. */
  checkout: string
  node: string
  /** npm's names of the packages that are not in the bundles of Krater. */
  packages: readonly string[]
}

/**
 * Unpacks the base into a new directory and makes a machine of the lab of it: with Krater, which does not start by itself.
 * @param archive of Debian's packages, with Vagrant's account and the kernel
 */
export async function makeLabRoot(
  archive: string,
  root: string,
  { checkout, node, packages }: LabParts,
  tools: Pick<Tools, 'run'>,
): Promise<void> {
  const inside = (path: string) => join(root, path)
  const lab = join(checkout, 'images/lab')
  mkdirSync(root, { mode: 0o755 })
  await tools.run('tar', [
    ...['--extract', '--same-owner', '--numeric-owner', '--preserve-permissions'],
    ...['--directory', root, '--file', archive],
  ])
  for (const path of REMOVED) rmSync(inside(path), { force: true })
  for (const path of EMPTIED) {
    for (const name of readdirSync(inside(path))) rmSync(join(inside(path), name), { recursive: true })
  }
  await tools.run('find', [inside('var/log'), '-type', 'f', '-delete'])
  for (const name of readdirSync(inside('etc/ssh')))
    if (name.startsWith('ssh_host_')) rmSync(join(inside('etc/ssh'), name))

  cpSync(join(lab, 'root'), root, { recursive: true })
  // sudo refuses others.
  chmodSync(inside('etc/sudoers.d/vagrant'), 0o440)
  const keys = inside('home/vagrant/.ssh/authorized_keys')
  cpSync(join(lab, 'vagrant.pub'), keys)
  chmodSync(keys, 0o600)
  chownSync(keys, VAGRANT_ID, VAGRANT_ID)
  writeFileSync(inside('etc/hostname'), 'lab\n')
  writeFileSync(inside('etc/hosts'), '127.0.0.1 localhost\n127.0.1.1 lab\n::1 localhost\n')
  writeFileSync(inside('etc/fstab'), `LABEL=${FILE_SYSTEM_LABEL} / ext4 noatime 0 0\n`)
  // Each machine gets an id of its own at its first start.
  writeFileSync(inside('etc/machine-id'), '')

  copyKrater(checkout, inside('usr/lib/krater'), packages)
  cpSync(node, inside('usr/lib/krater/node'))
  await tools.run('chmod', ['-R', 'u=rwX,go=rX', inside('usr/lib/krater')])
}
