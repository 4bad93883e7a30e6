import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomBytes, randomInt } from 'node:crypto'
import { once } from 'node:events'
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { ip } from '../../../controller/network/local/ip-command.js'
import { eventually } from '../eventually.js'
import { newSshKeyPair } from '../inputs/ssh-keys.js'
import type { Lan } from './lan.js'

const run = promisify(execFile)

export type CommandResult = { status: number; stdout: string; stderr: string }

/**
 * A Debian host with systemd and sshd: the root file system that scripts/debian-hosts.js builds, with processes, mounts,
 * control groups and a network of its own. `eth0` leads to the test's Krater, and `eth1` to a LAN. What it writes stays
 * until the end of the test.
 */
export type DebianHost = {
  name: string
  /** Where sshd listens for root, who accepts `identity`. */
  address: string
  /** The host's own part of its addresses on the LAN. */
  number: number
  /** Of `eth1`. */
  mac: string
  /** The fingerprint of its host key. */
  fingerprint: () => Promise<string>
  /** The place of one of its files here. */
  path: (file: string) => string
  /** Its files, packages, units, accounts and addresses, for comparison. */
  inventory: () => Promise<string[]>
  /** Runs a script as root on it. */
  run: (script: string) => Promise<CommandResult>
  /** As run. @returns what it prints @throws Error if it fails */
  must: (script: string) => Promise<string>
  /** Ends every process at once, and takes both cables away. */
  powerOff: () => Promise<void>
  powerOn: () => Promise<void>
  /** Shuts it down in an orderly way, and starts it again. */
  reboot: () => Promise<void>
}

export type HostRoom = {
  /** The address of the test's Krater, as hosts see it. */
  address: string
  /** A private key that root, `operator`, who may use sudo, and `guest`, who may not, accept on each host. */
  identity: string
  /** Adds a host and starts it. @param number of its addresses; unique on the LAN */
  add: (host: { name: string; suite: 'bookworm' | 'trixie'; number: number }) => Promise<DebianHost>
}

const cache = join(import.meta.dirname, '../../../node_modules/.cache/debian-hosts')
const START_MS = 120_000

/** A cable from each host to this one, on a network of their own. The teardown removes all of it. */
export async function createHostRoom(t: Test, lan: Lan): Promise<HostRoom> {
  const id = randomBytes(3).toString('hex')
  const part = randomInt(256)
  const addressOf = (number: number) => `198.18.${part}.${number}`
  const bridge = `hosts${id}`
  const directory = mkdtempSync(join(tmpdir(), 'kr-hosts-'))
  const identity = join(directory, 'identity')
  const { private: privateKey, public: publicKey } = newSshKeyPair()
  writeFileSync(identity, privateKey, { mode: 0o600 })
  const removals: (() => Promise<void>)[] = []
  await ip(['link', 'add', 'name', bridge, 'type', 'bridge', 'forward_delay', '0'])
  await ip(['address', 'add', `${addressOf(1)}/24`, 'dev', bridge])
  await ip(['link', 'set', 'dev', bridge, 'addrgenmode', 'none', 'up'])
  t.teardown(async () => {
    for (const remove of removals) await remove()
    await ip(['link', 'delete', 'dev', bridge])
    rmSync(directory, { recursive: true })
  })
  return {
    address: addressOf(1),
    identity,
    add: async ({ name, suite, number }) => {
      const root = readdirSync(cache).find(found => found.startsWith(`${suite}-`) && !found.endsWith('.new'))
      if (root === undefined) throw new Error(`There is no root file system of ${suite} in ${cache}.`)
      const { host, remove } = await createHost({
        ...{ name, number, publicKey, lan, bridge, root: join(cache, root), address: addressOf(number) },
        ...{ namespace: `test-host-${id}-${number}`, directory: join(directory, name) },
      })
      removals.push(remove)
      await host.powerOn()
      return host
    },
  }
}

/** The first program of a host: takes the root that is mounted at `$1`, and becomes systemd. */
const ENTER = `
set -e
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for name in full null random tty urandom zero; do : >"dev/$name"; mount --bind "/dev/$name" "dev/$name"; done
: >dev/console
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
ln -s /proc/self/fd dev/fd
for number in 0 1 2; do ln -s "fd/$number" "dev/$(echo stdin stdout stderr | cut -d ' ' -f $((number + 1)))"; done
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
hostname "$2"
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=krater-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console --show-status=no
`

/** Leaves out what any installation or removal of packages changes for good: logs, caches, backups, records of dpkg. */
const INVENTORY = `
set -o pipefail
cd /
find . -xdev \\( -path ./var/log -o -path ./var/cache -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./var/backups \\
  -o -path ./var/lib/systemd -o -path ./var/lib/ucf -o -path ./var/tmp \\) -prune -o ! -name '*-' ! -name .pwd.lock ! -path ./etc/ld.so.cache -printf '%p %y %m %u:%g %l\\n' | sort
find etc root home opt -xdev -type f ! -name '*-' ! -name .pwd.lock ! -path etc/ld.so.cache -exec sha256sum {} + | sort -k 2
dpkg-query -W -f '\${Package} \${Version} \${db:Status-Status}\\n'
systemctl list-unit-files --no-legend --no-pager | grep -v transient | sort
ip -o address show scope global | sed 's/ nodad//' | tr -s ' ' | sort
ip route show table all | sort
ip -6 route show proto static
`

const ACCOUNTS = ['operator', 'guest']

/** Its files, before it first starts. */
function furnish(root: string, name: string, publicKey: string): void {
  writeFileSync(join(root, 'etc/hostname'), `${name}\n`)
  writeFileSync(join(root, 'etc/hosts'), `127.0.0.1 localhost\n127.0.1.1 ${name}\n`)
  writeFileSync(join(root, 'etc/resolv.conf'), '')
  // The packages made a key, which every host of the suite would have.
  for (const file of readdirSync(join(root, 'etc/ssh'))) {
    if (file.startsWith('ssh_host_')) rmSync(join(root, 'etc/ssh', file))
  }
  const key = newSshKeyPair()
  writeFileSync(join(root, 'etc/ssh/ssh_host_ed25519_key'), key.private, { mode: 0o600 })
  writeFileSync(join(root, 'etc/ssh/ssh_host_ed25519_key.pub'), `${key.public}\n`)
  writeFileSync(join(root, 'etc/machine-id'), '')
  for (const [at, account] of ACCOUNTS.entries()) {
    appendFileSync(join(root, 'etc/passwd'), `${account}:x:${2001 + at}:100::/home/${account}:/bin/bash\n`)
    appendFileSync(join(root, 'etc/shadow'), `${account}:*:20000:0:99999:7:::\n`)
  }
  writeFileSync(join(root, 'etc/sudoers.d/operator'), 'operator ALL=(ALL) NOPASSWD: ALL\n', { mode: 0o440 })
  for (const home of ['root', ...ACCOUNTS.map(account => `home/${account}`)]) {
    mkdirSync(join(root, home, '.ssh'), { recursive: true, mode: 0o755 })
    writeFileSync(join(root, home, '.ssh/authorized_keys'), `${publicKey}\n`, { mode: 0o644 })
  }
}

async function createHost(it: {
  name: string
  number: number
  address: string
  namespace: string
  directory: string
  root: string
  publicKey: string
  lan: Lan
  bridge: string
}): Promise<{ host: DebianHost; remove: () => Promise<void> }> {
  const { name, number, address, namespace, directory, lan, bridge } = it
  const [merged, layer] = [join(directory, 'root'), join(directory, 'layer')]
  const group = join(controlGroups(), namespace)
  const cable = `${bridge}-${number}`
  const mac = `02:00:00:19:00:${hex(number)}`
  let starter: ChildProcess | null = null

  mkdirSync(merged, { recursive: true })
  mkdirSync(layer)
  await run('mount', ['-t', 'tmpfs', '-o', 'size=1g,mode=755', 'layer', layer])
  for (const part of ['upper', 'work']) mkdirSync(join(layer, part))
  const layers = `lowerdir=${it.root},upperdir=${join(layer, 'upper')},workdir=${join(layer, 'work')}`
  await run('mount', ['-t', 'overlay', '-o', layers, 'overlay', merged])
  chmodSync(merged, 0o755)
  furnish(merged, name, it.publicKey)

  const first = () => {
    const pid = starter === null ? '' : readFileSync(`/proc/${starter.pid}/task/${starter.pid}/children`, 'utf8').trim()
    // Until it is systemd, it may see this machine's files, and moves whoever enters to its own in the middle of the work.
    if (pid === '' || readFileSync(`/proc/${pid}/comm`, 'utf8') !== 'systemd\n') throw new Error(`${name} is off`)
    return pid
  }
  const inside = async (script: string): Promise<CommandResult> =>
    run('nsenter', ['-t', first(), '-a', '--', '/bin/bash', '-c', script], {
      timeout: 240_000,
      maxBuffer: 64 * 1024 * 1024,
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', HOME: '/root', LC_ALL: 'C.UTF-8' },
    }).then(
      ({ stdout, stderr }) => ({ status: 0, stdout, stderr }),
      (error: { code?: unknown; stdout?: string; stderr?: string }) => ({
        status: typeof error.code === 'number' ? error.code : -1,
        stdout: error.stdout ?? '',
        stderr: error.stderr ?? String(error),
      }),
    )
  const must = async (script: string) => {
    const { status, stdout, stderr } = await inside(script)
    if (status !== 0) throw new Error(`${script} on ${name} ends with ${status}: ${stderr}`)
    return stdout
  }

  async function powerOn(): Promise<void> {
    await ip(['netns', 'add', namespace])
    await ip(['-n', namespace, 'link', 'set', 'lo', 'up'])
    await ip(['link', 'add', 'name', cable, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace])
    await ip(['link', 'set', 'dev', cable, 'master', bridge, 'up'])
    await ip(['-n', namespace, 'address', 'add', `${address}/24`, 'dev', 'eth0'])
    await ip(['-n', namespace, 'link', 'set', 'dev', 'eth0', 'address', `02:00:00:18:00:${hex(number)}`, 'up'])
    await lan.plug(namespace, 'eth1', number, mac)
    mkdirSync(group)
    const own = ['--mount', '--propagation', 'private', '--pid', '--fork', '--uts', '--ipc', '--cgroup', '--kill-child']
    const words = ['unshare', ...own, 'bash', '-c', ENTER, 'host', merged, name]
    starter = spawn(
      'bash',
      [
        '-c',
        'echo 0 >"$1/cgroup.procs"; shift; exec nsenter "$@"',
        'start',
        group,
        `--net=/run/netns/${namespace}`,
        ...words,
      ],
      { stdio: 'ignore' },
    )
    await eventually(
      `sshd of ${name} runs`,
      async () => (await inside('systemctl is-active --quiet ssh.service').catch(() => null))?.status === 0,
      START_MS,
    )
  }

  /** Waits until nothing of it runs, and removes what it had of this host. */
  async function settle(): Promise<void> {
    if (starter === null) return
    const ended = starter
    if (ended.exitCode === null && ended.signalCode === null) await once(ended, 'exit')
    starter = null
    // Its end in the LAN's switch goes with the other one, even while a socket with unsent data holds the namespace.
    await ip(['-n', lan.switchNamespace, 'link', 'delete', 'dev', `m${number}`]).catch(() => undefined)
    await ip(['link', 'delete', 'dev', cable]).catch(() => undefined)
    await ip(['netns', 'delete', namespace])
    await eventually('its control groups are empty', () => removeGroups(group))
  }

  async function powerOff(): Promise<void> {
    if (starter === null) return
    // The kernel kills its first process, and so every other one.
    starter.kill('SIGKILL')
    await settle()
  }

  const host: DebianHost = {
    ...{ name, address, number, mac, run: inside, must, powerOff, powerOn },
    path: file => join(merged, file),
    inventory: async () => (await must(INVENTORY)).split('\n'),
    fingerprint: async () => (await must('ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub')).split(' ')[1] ?? '',
    reboot: async () => {
      // The connection to systemd may end before its answer.
      await inside('systemctl poweroff')
      await settle()
      await powerOn()
    },
  }
  const remove = async () => {
    await powerOff()
    await run('umount', [merged])
    await run('umount', [layer])
  }
  return { host, remove }
}

const hex = (number: number) => number.toString(16).padStart(2, '0')

/** Where control groups of version 2 are; beside other versions, all of them are in one place. */
function controlGroups(): string {
  const line = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .find(text => text.split(' ')[2] === 'cgroup2')
  if (line === undefined) throw new Error('This machine has no control groups of version 2, which systemd needs.')
  return line.split(' ')[1] ?? ''
}

/** @returns whether they are gone; groups of processes that are about to end are not empty yet */
function removeGroups(path: string): boolean {
  try {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (entry.isDirectory()) removeGroups(join(path, entry.name))
    }
    rmdirSync(path)
    return true
  } catch {
    return false
  }
}
