import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { Settings } from './arguments.js'
import { stagedFor } from './output.js'
import { KERNEL_PACKAGE, mmdebstrapWords, type Package, parsePackages, type Selection } from './packages.js'
import type { Tools } from './tools.js'

/** Times of files that are later become this one, so that a build does not depend on when it runs: 2026-01-01. */
export const EPOCH = 1_767_225_600

/** What differs between two builds or two machines, what only an installation of packages needs, and all passwords. */
const REMOVED = [
  ...['etc/.pwd.lock', 'etc/apt/apt.conf.d/99mmdebstrap', 'etc/dpkg/dpkg.cfg.d/99mmdebstrap'],
  ...['etc/gshadow', 'etc/hostname', 'etc/machine-id', 'etc/resolv.conf', 'etc/shadow', 'etc/subgid', 'etc/subuid'],
  ...['root/.bash_history', 'root/.wget-hsts', 'var/lib/dbus/machine-id', 'var/lib/systemd/random-seed'],
]
const EMPTIED = ['dev', 'run', 'tmp', 'var/backups', 'var/cache', 'var/lib/apt/lists', 'var/log', 'var/tmp']
const REMOVED_PATTERNS: readonly [directory: string, pattern: RegExp][] = [
  ['etc', /-$/],
  ['etc/ssh', /^ssh_host_/],
  ['var/lib/dpkg', /-old$|^lock/],
  ['var/lib/dpkg/triggers', /^Lock$/],
]

/** Debian's packages, unpacked and configured, with the kernel: a tar archive. */
export type Base = { archive: string; packages: Package[] }

/** Makes the base of a machine, or finds that of an earlier build with the same packages. */
export async function makeBase(
  settings: Settings,
  selection: Selection,
  { cache, builder, tools }: Places,
): Promise<Base> {
  const scripts = [join(builder, 'customize.sh'), ...(selection.script === undefined ? [] : [selection.script])]
  const texts = scripts.map(path => readFileSync(path, 'utf8'))
  const words = [...mmdebstrapWords(settings, selection, '', []), ...texts]
  const key = createHash('sha256').update(JSON.stringify(words)).digest('hex').slice(0, 16)
  const [archive, records] = [join(cache, `base-${key}.tar`), join(cache, `base-${key}.records`)]
  if (settings.fresh || !existsSync(archive)) {
    await tools.step(`Debian ${settings.suite}`, async report => {
      const [newArchive, newRecords] = [stagedFor(archive), stagedFor(records)]
      const [first = '', ...others] = scripts.map(path => `'${path}'`)
      const hooks = [`${first} '${KERNEL_PACKAGE}' '${newRecords}' "$1"`, ...others.map(path => `${path} "$1"`)]
      try {
        await tools.run('mmdebstrap', mmdebstrapWords(settings, selection, newArchive, hooks), {
          report,
          // Emulated processors are ten times slower, and slower still beside others.
          seconds: 3600,
          env: { SOURCE_DATE_EPOCH: String(EPOCH) },
        })
        await tools.run('sync', ['--file-system', cache])
        // An archive is there only with its own records, even if this is killed between two of these lines.
        rmSync(archive, { force: true })
        renameSync(newRecords, records)
        renameSync(newArchive, archive)
      } finally {
        for (const path of [newArchive, newRecords]) rmSync(path, { force: true })
      }
    })
  } else {
    tools.say(`Debian ${settings.suite}: the packages of an earlier build; --fresh fetches the newest`)
  }
  return { archive, packages: parsePackages(readFileSync(records, 'utf8')) }
}

/** Where a build finds its parts. */
export type Places = {
  /** Keeps what the next build can use again. */
  cache: string
  /** The folder of the builder's sources. */
  builder: string
  tools: Tools
}

/** The parts of an amphora that are not Debian's. */
export type OwnParts = {
  /** The folder images/amphora. */
  files: string
  node: string
  agent: string
}

/**
 * Unpacks the base into a new directory and makes an amphora of it: without what belongs to one machine, with our own
 * files. Everything in it belongs to root.
 */
export async function makeRoot(base: Base, root: string, own: OwnParts, tools: Tools): Promise<void> {
  mkdirSync(root, { mode: 0o755 })
  await tools.run('tar', [
    '--extract',
    '--no-same-owner',
    '--preserve-permissions',
    '--directory',
    root,
    '--file',
    base.archive,
  ])
  const inside = (path: string) => join(root, path)
  for (const path of REMOVED) rmSync(inside(path), { recursive: true, force: true })
  for (const path of EMPTIED) {
    for (const name of existsSync(inside(path)) ? readdirSync(inside(path)) : [])
      rmSync(join(inside(path), name), { recursive: true })
  }
  for (const [path, pattern] of REMOVED_PATTERNS) {
    for (const name of existsSync(inside(path)) ? readdirSync(inside(path)) : [])
      if (pattern.test(name)) rmSync(join(inside(path), name))
  }
  for (const path of ['opt/krater', 'etc/krater', 'var/empty', 'var/lib/krater', 'etc/haproxy'])
    mkdirSync(inside(path), { recursive: true, mode: 0o755 })
  mkdirSync(inside('etc/ssh/authorized_keys'), { mode: 0o711 })
  cpSync(join(own.files, 'etc'), inside('etc'), { recursive: true })
  // For machines in namespaces, which take no other files of /etc: only the image knows which of them it has.
  cpSync(join(own.files, 'etc'), inside('opt/krater/etc'), { recursive: true })
  for (const name of readdirSync(own.files).filter(name => name.endsWith('.sh')))
    cpSync(join(own.files, name), inside(`opt/krater/${name}`))
  cpSync(own.node, inside('opt/krater/node'))
  cpSync(own.agent, inside('opt/krater/agent.mjs'))
  replaceLink(inside('usr/sbin/init'), '/opt/krater/machine-init.sh')
  for (const name of ['poweroff', 'reboot', 'halt']) replaceLink(inside(`usr/sbin/${name}`), '/bin/busybox')
  // Nobody but root runs programs of an amphora.
  await tools.run('find', [root, '-xdev', '-type', 'f', '-perm', '/6000', '-exec', 'chmod', 'a-s', '{}', '+'])
  await tools.run('chmod', ['-R', 'u=rwX,go=rX', inside('opt'), inside('etc/krater')])
  await tools.run('chmod', ['755', ...['node', 'init.sh', 'machine-init.sh'].map(name => inside(`opt/krater/${name}`))])
}

/** Gives files that the build itself wrote a fixed time. The last step before the files are used. */
export async function settleTimes(root: string, { run }: Pick<Tools, 'run'>): Promise<void> {
  const touch = ['touch', '--no-dereference', `--date=@${EPOCH}`, '{}', '+']
  await run('find', [root, '-newermt', `@${EPOCH}`, '-exec', ...touch])
}

function replaceLink(path: string, target: string): void {
  rmSync(path, { force: true })
  symlinkSync(target, path)
}
