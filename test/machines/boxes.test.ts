import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readManifest } from '../../controller/compute/images/manifest.js'
import { ownPorts } from '../support/ports.js'

/** Milliseconds: an emulated machine is slow, and slower beside others. */
const LIMIT_MS = 400_000
t.setTimeout(3 * LIMIT_MS)

const image = join(import.meta.dirname, '../../images/out')
const boxes = join(image, 'boxes')
const folder = t.testdir()

type Machine = { qemu: ChildProcess; ended: Promise<unknown>; end: () => Promise<void>; says: () => string }

/** Starts a machine, which ends with the test at the latest. Its console is a serial one. */
function startMachine(t: Test, name: string, disk: string, options: readonly string[]): Machine {
  const console = join(folder, `${name}.console`)
  const words = [
    ...['-machine', 'pc,usb=off', '-accel', 'tcg,tb-size=128', '-cpu', 'Nehalem,+rdrand', '-display', 'none'],
    ...['-nodefaults', '-no-user-config', '-no-reboot', '-serial', `file:${console}`, '-drive', disk, ...options],
  ]
  const qemu = spawn('qemu-system-x86_64', words, { stdio: ['ignore', 'ignore', 'inherit'] })
  const ended = once(qemu, 'exit')
  const end = async () => {
    qemu.kill('SIGKILL')
    await ended
  }
  t.teardown(end)
  return { qemu, ended, end, says: () => (existsSync(console) ? readFileSync(console, 'utf8') : '') }
}

/** The disk of a machine: what is written to it goes to a file of its own. */
function overlay(name: string, base: string, format: string, bus: string): string {
  const path = join(folder, `${name}.overlay`)
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', base, '-F', format, path])
  return `file=${path},if=${bus},cache=unsafe`
}

t.test('an amphora that was never given its keys says so on every console, and powers off', async t => {
  const options = readManifest(image)?.kernelOptions
  const machine = startMachine(t, 'bare', overlay('bare', join(image, 'disk.qcow2'), 'qcow2', 'virtio'), [
    ...['-m', '256', '-vga', 'std', '-kernel', join(image, 'kernel'), '-initrd', join(image, 'initrd')],
    // The last console, which is a screen here, is /dev/console.
    ...['-append', `console=ttyS0 console=tty0 tsc=reliable ${options}`],
  ])
  await machine.ended
  t.match(machine.says(), /krater: this machine was never given its keys: its first boot needs a seed disk/)
})

/** Vagrant's own key, with which it first logs in. */
function vagrantKey(): string {
  const gems = '/usr/share/rubygems-integration/all/gems'
  const vagrant = readdirSync(gems).find(name => /^vagrant-\d/.test(name)) ?? ''
  const key = join(folder, 'vagrant')
  // ssh takes no key that others may read.
  if (!existsSync(key)) copyFileSync(join(gems, vagrant, 'keys/vagrant'), key)
  chmodSync(key, 0o600)
  return key
}

/** What a command prints that Vagrant's account runs. Waits until sshd answers. */
async function inside({ qemu, says }: Machine, port: number, command: string): Promise<string> {
  const ignoring = ['-F', 'none', '-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null']
  const words = ['-o', 'BatchMode=yes', '-o', 'ConnectTimeout=60', '-o', 'LogLevel=ERROR', '-p', String(port)]
  for (const end = performance.now() + LIMIT_MS; ; await delay(1000)) {
    const ssh = spawn('ssh', ['-i', vagrantKey(), ...ignoring, ...words, 'vagrant@127.0.0.1', command])
    let [output, errors] = ['', '']
    ssh.stdout.on('data', (piece: Buffer) => {
      output += piece
    })
    ssh.stderr.on('data', (piece: Buffer) => {
      errors += piece
    })
    const [code] = await once(ssh, 'close')
    if (code === 0) return output.trim()
    // ssh itself ends with 255.
    if (code !== 255 || qemu.exitCode !== null || performance.now() > end)
      throw new Error(`${command}: exit status ${code}\n${output}\n${errors}\n${says().slice(-4000)}`)
  }
}

/** Waits for the end of the boot, and prints `LABEL value` for what matters of the machine. */
const DESCRIBE = `
systemctl is-system-running --wait >/dev/null
value() { echo "$1" "$(eval "$2" 2>&1 | tr '\\n' ' ')"; }
value state 'systemctl is-system-running'
value failed 'systemctl list-units --failed --no-legend --plain'
value root 'sudo -n id -u'
value address 'ip -4 -o address show dev eth0 | sed -E "s/.* inet ([^ ]+) .*/\\1/"'
value names 'resolvectl dns eth0 | cut -d ":" -f 2; grep "^nameserver" /etc/resolv.conf'
value id 'cat /etc/machine-id'
value key 'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d " " -f 2'
value krater 'krater --version'
value history 'sudo find /root /home /var/log -name "*_history"'
value passwords 'sudo cut -d: -f2 /etc/shadow | grep -v "^[!*]"'`

const BOXES = {
  libvirt: { disk: 'box.img', format: 'qcow2', bus: 'virtio', metadata: { format: 'qcow2', virtual_size: 16 } },
  virtualbox: { disk: 'disk.vmdk', format: 'vmdk', bus: 'ide', metadata: {} },
}

t.test('the disk of each box boots by itself to a machine that Vagrant can use', async t => {
  const machines: Record<string, string>[] = []
  // Two at once on a busy machine make each other too late for systemd's own time limits.
  for (const [provider, { disk, format, bus, metadata }] of Object.entries(BOXES)) {
    const parts = join(folder, provider)
    mkdirSync(parts)
    execFileSync('tar', ['--extract', '--directory', parts, '--file', join(boxes, `lab-${provider}.box`)])
    t.strictSame(JSON.parse(readFileSync(join(parts, 'metadata.json'), 'utf8')), { provider, ...metadata })
    const [port = 0] = await ownPorts(1)
    const machine = startMachine(t, provider, overlay(provider, join(parts, disk), format, bus), [
      ...['-m', '512', '-netdev', `user,id=net,hostfwd=tcp:127.0.0.1:${port}-:22`],
      ...['-device', 'virtio-net-pci,netdev=net,romfile=', '-device', 'virtio-rng-pci'],
    ])
    const lines = (await inside(machine, port, DESCRIBE)).split('\n')
    machines.push(
      Object.fromEntries(lines.map(line => [line.split(' ')[0] ?? '', line.split(' ').slice(1).join(' ').trim()])),
    )
    await machine.end()
  }
  for (const { id, key, krater, ...rest } of machines) {
    t.strictSame(rest, {
      ...{ state: 'running', failed: '', root: '0', history: '', passwords: '' },
      // What QEMU's DHCP server says.
      ...{ address: '10.0.2.15/24', names: '10.0.2.3 nameserver 127.0.0.53' },
    })
    t.match(krater, /^\d+\.\d+\.\d+/)
    t.match([id, key], [/^[0-9a-f]{32}$/, /^SHA256:/])
  }
  for (const name of ['id', 'key'])
    t.equal(new Set(machines.map(machine => machine[name])).size, 2, `each machine makes its own ${name}`)
})
