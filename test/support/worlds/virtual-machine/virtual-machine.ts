import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import ssh2, { type Client } from 'ssh2'
import type { Test } from 'tap'
import { newSshKeyPair } from '../../inputs/ssh-keys.js'
import { ownPorts } from '../../ports.js'

const here = import.meta.dirname
const root = join(here, '../../../..')
/** scripts/debian-kernel.js provides it. */
const kernelDirectory = join(root, 'node_modules/.cache/debian-kernel')
/** What the initial file system needs to mount the host's directories. The machine loads everything else itself. */
const FIRST_MODULES = ['virtio_pci', 'virtiofs']
/** Of the host's /etc: what programs and libraries need to start, and the accounts. */
const SHARED_ETC = [
  'alternatives',
  'group',
  'ld.so.cache',
  'ld.so.conf',
  'ld.so.conf.d',
  'protocols',
  'services',
  'ssl/openssl.cnf',
]
const OWN_ETC = {
  'nsswitch.conf': 'passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n',
  hosts: '127.0.0.1 localhost vm\n::1 localhost\n',
  'ssh/sshd_config': `HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
UsePAM no
UseDNS no
StrictModes no
PrintMotd no
PrintLastLog no
MaxSessions 100
`,
}
/** An emulated processor: without AVX, for which QEMU has no fast code, and with a source of random numbers. */
const PROCESSOR = 'Nehalem,+rdrand'
/** The emulated machine has no other clock than a slow one, unless the kernel trusts the processor's. */
const KERNEL_OPTIONS =
  'console=ttyS0 quiet net.ifnames=0 mitigations=off audit=0 random.trust_cpu=on tsc=reliable panic=-1'
const BOOT_SECONDS = 180
const COMMAND_SECONDS = 60

/** A virtual machine with Debian's own kernel, the programs of the host's /usr, and a root in memory. */
export type VirtualMachine = {
  /**
   * Runs a command line of bash as root.
   * @returns its standard output
   * @throws Error with all its output when it fails or takes longer than `seconds`
   */
  run: (command: string, options?: { seconds?: number }) => Promise<string>
  /** Starts a program that runs until the machine ends. It hears and says nothing. */
  start: (command: string) => Promise<void>
  /** Writes a file of the machine. */
  write: (path: string, text: string) => Promise<void>
  /** @returns a Unix socket of this host that leads to one of the machine */
  forward: (path: string) => Promise<string>
}

export type VirtualMachineOptions = {
  /** Of this host, which the machine sees too. */
  directories?: readonly string[]
  /** As QEMU writes it. */
  memory?: string
  /** A tap interface of this host that the machine has as `eth1`, with its MAC address and MTU. */
  cable?: { tap: string; macAddress: string; mtu: number }
}

/**
 * Starts a virtual machine, emulated by QEMU. It sees the host's /usr, this checkout, the Node.js that runs and
 * `directories`, at their places and read-only. It has no network but its cable, and the one for `run` and `forward`.
 * It ends with the test.
 */
export async function startVirtualMachine(
  t: Pick<Test, 'teardown'>,
  { directories = [], memory = '3G', cable }: VirtualMachineOptions = {},
): Promise<VirtualMachine> {
  const directory = mkdtempSync(join(tmpdir(), 'vm-'))
  const keys = { host: newSshKeyPair(), client: newSshKeyPair() }
  const [port = 0] = await ownPorts(1)
  const shares = sharedDirectories(directories)
  const initial = createInitialFiles(directory, shares, keys)
  const children: ChildProcess[] = shares.map((path, index) => startShare(path, join(directory, `share${index}`)))
  const servers: Server[] = []
  t.teardown(async () => {
    for (const server of servers) server.close()
    for (const child of children) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      const ended = once(child, 'exit')
      child.kill('SIGKILL')
      await ended
    }
    rmSync(directory, { recursive: true, force: true })
  })
  await Promise.all(shares.map((_, index) => appears(join(directory, `share${index}`))))
  const qemu = startQemu(directory, { shares: shares.length, initial, port, memory, cable })
  children.unshift(qemu)
  const ssh = await connect({ port, keys, ended: () => qemu.exitCode !== null }).catch(error => {
    throw new Error(`The virtual machine does not answer: ${error}\n${consoleTail(directory)}`)
  })
  const run: VirtualMachine['run'] = (command, { seconds = COMMAND_SECONDS } = {}) =>
    execute(ssh, command, seconds).catch(error => {
      throw new Error(`${error instanceof Error ? error.message : error}\n${consoleTail(directory)}`)
    })
  return {
    run,
    start: async command => void (await run(`setsid ${command} </dev/null >/dev/null 2>&1 &`)),
    write: async (path, text) => void (await execute(ssh, `cat >${path}`, COMMAND_SECONDS, text)),
    forward: async path => {
      const server = createServer(socket => {
        socket.on('error', () => socket.destroy())
        ssh.openssh_forwardOutStreamLocal(path, (error, stream) => {
          if (error) return socket.destroy()
          stream.on('error', () => socket.destroy())
          stream.on('close', () => socket.destroy())
          socket.on('close', () => stream.destroy())
          socket.pipe(stream).pipe(socket)
        })
      })
      servers.push(server)
      const local = join(directory, `socket${servers.length}`)
      server.listen(local)
      await once(server, 'listening')
      return local
    },
  }
}

/** Of directories in one another, only the outer one. */
function sharedDirectories(more: readonly string[]): string[] {
  const paths = ['/usr', root, dirname(process.execPath), ...more]
  return paths.filter(path => !paths.some(other => path.startsWith(`${other}/`)))
}

type Keys = Record<'host' | 'client', ReturnType<typeof newSshKeyPair>>

/** The initial file system, as an archive. */
function createInitialFiles(directory: string, shares: readonly string[], keys: Keys): string {
  const files = join(directory, 'initial')
  const [release] = existsSync(kernelDirectory) ? readdirSync(join(kernelDirectory, 'lib/modules')) : []
  if (release === undefined)
    throw new Error(`There is no kernel in ${kernelDirectory}: npm run suites fetches it, and npm run bench`)
  for (const name of ['bin', 'dev', 'proc', 'root', 'modules', 'etc/ssh'])
    mkdirSync(join(files, name), { recursive: true })
  cpSync('/bin/busybox', join(files, 'bin/busybox'), { dereference: true })
  for (const [script, name] of [
    ['init.sh', 'init'],
    ['first-process.sh', 'first-process.sh'],
  ] as const) {
    cpSync(join(here, script), join(files, name))
    chmodSync(join(files, name), 0o755)
  }
  const modules = FIRST_MODULES.flatMap(name => modulesFor(name, release))
  for (const path of modules) cpSync(path, join(files, 'modules', basename(path)))
  writeFileSync(join(files, 'modules/order'), [...new Set(modules)].map(path => `${basename(path)}\n`).join(''))
  writeFileSync(join(files, 'modules/path'), `${join(kernelDirectory, 'lib/modules')}\n`)
  writeFileSync(join(files, 'shares'), shares.map((path, index) => `share${index} ${path}\n`).join(''))
  for (const name of SHARED_ETC) {
    if (existsSync(join('/etc', name)))
      cpSync(join('/etc', name), join(files, 'etc', name), { recursive: true, verbatimSymlinks: true })
  }
  const accounts = readFileSync('/etc/passwd', 'utf8').replace(/^root:.*$/m, 'root:*:0:0:root:/root:/bin/bash')
  const own = { ...OWN_ETC, passwd: accounts, 'ssh/authorized_keys': keys.client.public }
  for (const [name, text] of Object.entries(own)) writeFileSync(join(files, 'etc', name), text)
  writeFileSync(join(files, 'etc/ssh/host_key'), keys.host.private, { mode: 0o600 })
  const archive = join(directory, 'initial.cpio')
  execFileSync('bash', ['-c', 'find . | cpio --create --format=newc --quiet >"$0"', archive], {
    cwd: files,
    stdio: 'pipe',
  })
  return archive
}

/** The files of a module and of those that it needs, in the order in which the kernel takes them. */
function modulesFor(name: string, release: string): string[] {
  const words = ['-d', kernelDirectory, '-S', release, '--show-depends', name]
  const lines = execFileSync('modprobe', words, { encoding: 'utf8', stdio: 'pipe' }).split('\n')
  return lines.flatMap(line => /^insmod (\S+)/.exec(line)?.[1] ?? [])
}

/** Serves a directory to QEMU. In mounts of its own, because it writes to /run, which the host shares. */
function startShare(path: string, socket: string): ChildProcess {
  const words = [`--socket-path=${socket}`, '-o', `source=${path}`, '-o', 'cache=always', '-o', 'sandbox=chroot']
  const script = 'mount -t tmpfs tmpfs /run && exec /usr/lib/qemu/virtiofsd --thread-pool-size=0 "$@"'
  return spawn('unshare', ['--mount', 'bash', '-c', script, 'virtiofsd', ...words], { stdio: 'ignore' })
}

type QemuOptions = Pick<VirtualMachineOptions, 'cable'> & {
  shares: number
  initial: string
  port: number
  memory: string
}

function startQemu(directory: string, { shares, initial, port, memory, cable }: QemuOptions): ChildProcess {
  const [kernel = ''] = readdirSync(join(kernelDirectory, 'boot')).filter(name => name.startsWith('vmlinuz-'))
  const devices = Array.from({ length: shares }, (_, index) => [
    ...['-chardev', `socket,id=share${index},path=${join(directory, `share${index}`)}`],
    ...['-device', `vhost-user-fs-pci,chardev=share${index},tag=share${index},queue-size=1024`],
  ])
  const words = [
    ...['-machine', 'q35,usb=off,memory-backend=memory', '-accel', 'tcg,thread=multi,tb-size=512'],
    ...['-cpu', PROCESSOR, '-smp', '2', '-m', memory],
    ...['-object', `memory-backend-memfd,id=memory,size=${memory},share=on`],
    ...['-nographic', '-nodefaults', '-no-user-config', '-no-reboot'],
    ...['-serial', `file:${join(directory, 'console')}`],
    ...['-kernel', join(kernelDirectory, 'boot', kernel), '-initrd', initial, '-append', KERNEL_OPTIONS],
    ...devices.flat(),
    ...['-device', 'virtio-rng-pci'],
    ...['-netdev', `user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:${port}-:22`],
    ...['-device', 'virtio-net-pci,netdev=net,romfile='],
    ...(cable === undefined
      ? []
      : [
          ...['-netdev', `tap,id=cable,ifname=${cable.tap},script=no,downscript=no`],
          ...['-device', `virtio-net-pci,netdev=cable,mac=${cable.macAddress},host_mtu=${cable.mtu},romfile=`],
        ]),
  ]
  return spawn('qemu-system-x86_64', words, { stdio: ['ignore', 'ignore', 'inherit'] })
}

async function appears(path: string): Promise<void> {
  for (const end = performance.now() + 10_000; !existsSync(path); await delay(10)) {
    if (performance.now() > end) throw new Error(`${path} does not appear`)
  }
}

/** The last lines that the kernel and sshd wrote. */
function consoleTail(directory: string): string {
  const path = join(directory, 'console')
  return existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(-20).join('\n') : ''
}

/** Connects as soon as sshd answers. */
async function connect({ port, keys, ended }: { port: number; keys: Keys; ended: () => boolean }): Promise<Client> {
  for (const end = performance.now() + BOOT_SECONDS * 1000; ; await delay(250)) {
    try {
      return await logIn(port, keys)
    } catch (error) {
      if (ended() || performance.now() > end) throw error
    }
  }
}

function logIn(port: number, keys: Keys): Promise<Client> {
  const [, hostKey = ''] = keys.host.public.split(' ')
  return new Promise((resolve, reject) => {
    const client = new ssh2.Client()
    client.once('ready', () => resolve(client))
    client.once('error', reject)
    client.on('error', () => undefined)
    client.connect({
      ...{ host: '127.0.0.1', port, username: 'root', privateKey: keys.client.private, readyTimeout: 20_000 },
      hostVerifier: (key: Buffer) => key.toString('base64') === hostKey,
    })
  })
}

function execute(client: Client, command: string, seconds: number, input = ''): Promise<string> {
  return new Promise((resolve, reject) => {
    client.exec(command, (error, stream) => {
      if (error) return reject(error)
      let output = ''
      let all = ''
      const fail = (why: string) => reject(new Error(`${command.slice(0, 500)}\n${why}\n${all}`))
      const limit = setTimeout(() => {
        stream.destroy()
        fail(`took longer than ${seconds} s`)
      }, seconds * 1000)
      stream.end(input)
      stream.on('data', (piece: Buffer) => {
        output += piece
        all += piece
      })
      stream.stderr.on('data', (piece: Buffer) => {
        all += piece
      })
      stream.once('close', (code: number | null) => {
        clearTimeout(limit)
        if (code === 0) resolve(output)
        else fail(`exited with status ${code}`)
      })
    })
  })
}
