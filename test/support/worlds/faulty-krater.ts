import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { stringify } from 'yaml'
import { execute } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { bootstrapNetworks } from '../../../controller/network/bootstrap.js'
import { createTestDatabase } from '../database/database.js'
import { ownPorts } from '../ports.js'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../../..')

export const AMPHORA = 'a0000000-0000-4000-8000-000000000001'
const SERVICES = ['identity', 'network', 'load_balancer', 'key_manager', 'health_manager'] as const
const CIDR = '10.99.0.0/16'
const SCHEMAS = ['identity', 'network', 'load_balancer', 'key_manager'] as const

/** A copy of a set-up state directory, and how a command runs on it. */
export type Cell = {
  directory: string
  ports: readonly number[]
  environment: NodeJS.ProcessEnv
  /** Program and arguments before those of Krater, such as setpriv. */
  prefix: string[]
  /** Called once, when the command waits for the silent database. */
  onSilence: (() => void) | null
}

/** Ordinary faults, in the order in which they are applied when there are several. */
export const FAULTS = [
  'no database',
  'silent database',
  'half-made directory',
  'wrong master key',
  'missing keys',
  'port taken',
  'full disk',
  'read-only disk',
  'another user',
] as const
export type Fault = (typeof FAULTS)[number]

export type Ended = { status: number | null; stdout: string; stderr: string }

/** A state directory that `krater db migrate` set up, to be copied, damaged and used. */
export type FaultyKrater = {
  cell: (faults: readonly Fault[]) => Promise<Cell>
  /** Runs a command to its end, or until `ready` is printed and a Ctrl-C then ends it. */
  run: (cell: Cell, args: readonly string[], ready: RegExp | null) => Promise<Ended>
  remove: (cell: Cell) => Promise<void>
  /** All files of the directory but logs and records of processes, with content and mode. */
  digest: (cell: Cell) => string
}

export async function createFaultyKrater(t: Test): Promise<FaultyKrater> {
  const parent = await createProgramDirectory()
  const program = join(parent, 'dist/krater.js')
  const database = await createTestDatabase()
  const [taken = 0, nobody = 0, ...templatePorts] = await ownPorts(2 + SERVICES.length)
  const stopHolder = await holdPort(taken)
  const silent: SilentServer[] = []
  const base = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(KRATER|OS)_|^_?TAP/.test(name)))
  const template = join(parent, 'template')
  mkdirSync(template)
  writeFileSync(join(template, 'krater.yaml'), settings(database.urlOf, templatePorts), { mode: 0o600 })
  for (const words of [
    ['db', 'migrate'],
    ['key-manager', 'rotate-project-keys', '--all'],
  ]) {
    await run(process.execPath, [program, '--state-dir', template, ...words], { env: base, timeout: 240_000 })
  }
  await execute(
    database.of('load_balancer'),
    sql`INSERT INTO amphora (id, status, lb_network_ip, compute_driver, compute_flavor)
          VALUES (${AMPHORA}, 'READY', '127.0.0.1', 'noop', 'noop')`,
  )
  await bootstrapNetworks(database.of('network'), { cidr: CIDR, serviceProjectId: 'service' })
  const mounted: string[] = []
  let count = 0

  const mount = async (directory: string, size: string) => {
    const aside = `${directory}-aside`
    renameSync(directory, aside)
    mkdirSync(directory)
    await run('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=711`, 'krater-test', directory])
    mounted.push(directory)
    cpSync(aside, directory, { recursive: true })
    rmSync(aside, { recursive: true })
  }
  const useDatabase = ({ directory, ports }: Cell, urlOf: UrlOf) =>
    writeFileSync(join(directory, 'krater.yaml'), settings(urlOf, ports))

  const apply: Readonly<Record<Fault, (cell: Cell) => unknown>> = {
    'no database': cell => useDatabase(cell, () => `postgres://k:p@127.0.0.1:${nobody}/krater`),
    'silent database': async cell => {
      const server = await startSilentServer(() => cell.onSilence?.())
      silent.push(server)
      useDatabase(cell, () => `postgres://k:p@127.0.0.1:${server.port}/krater`)
    },
    'half-made directory': cell => {
      for (const name of readdirSync(cell.directory)) {
        if (!['instance', 'krater.yaml', 'log', 'run'].includes(name))
          rmSync(join(cell.directory, name), { recursive: true })
      }
      useDatabase(cell, schema => database.urlOf(schema).replace(/\/\/\w+/, '//krater_unmade'))
    },
    'wrong master key': ({ directory }) => {
      const file = join(directory, 'keys/key-manager-master')
      if (existsSync(file)) writeFileSync(file, `${'ab'.repeat(32)}\n`)
    },
    'missing keys': ({ directory }) => {
      const keys = join(directory, 'keys')
      for (const name of existsSync(keys) ? readdirSync(keys) : []) {
        if (name !== 'passwords.json') rmSync(join(keys, name))
      }
    },
    'port taken': ({ environment }) => {
      for (const service of ['KEY_MANAGER', 'HEALTH_MANAGER']) environment[`KRATER_${service}_PORT`] = String(taken)
    },
    'full disk': async ({ directory }) => {
      await mount(directory, '1m')
      await run('sh', ['-c', `cat /dev/zero > ${directory}/log/full 2>/dev/null || true`])
    },
    'read-only disk': async ({ directory }) => {
      if (!mounted.includes(directory)) await mount(directory, '10m')
      await run('mount', ['-o', 'remount,ro', directory])
    },
    'another user': ({ prefix }) => prefix.push('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups'),
  }

  t.teardown(async () => {
    for (const server of silent) server.stop()
    stopHolder()
    await database.drop()
    rmSync(parent, { recursive: true, force: true })
  })

  return {
    cell: async faults => {
      const directory = join(parent, String(++count))
      const ports = await ownPorts(SERVICES.length)
      cpSync(template, directory, { recursive: true })
      replacePorts(directory, templatePorts, ports)
      const environment = { ...base, KRATER_STATE_DIR: directory }
      const cell: Cell = { directory, ports, environment, prefix: [], onSilence: null }
      for (const fault of FAULTS) if (faults.includes(fault)) await apply[fault](cell)
      return cell
    },
    run: (cell, args, ready) => runCommand([...cell.prefix, process.execPath, program, ...args], cell, ready),
    remove: async ({ directory }) => {
      if (mounted.includes(directory)) await run('umount', ['-l', directory])
      rmSync(directory, { recursive: true, force: true })
    },
    digest: ({ directory }) => digestOf(directory),
  }
}

/** A copy of the built program that another user may enter and run. */
async function createProgramDirectory(): Promise<string> {
  await run(process.execPath, [join(root, 'scripts/build.js'), '--if-needed'], { timeout: 120_000 })
  const directory = mkdtempSync(join(tmpdir(), 'f-'))
  chmodSync(directory, 0o755)
  cpSync(join(root, 'dist'), join(directory, 'dist'), { recursive: true })
  for (const name of ['node_modules', 'templates']) symlinkSync(join(root, name), join(directory, name))
  return directory
}

type UrlOf = (schema: (typeof SCHEMAS)[number]) => string

function settings(urlOf: UrlOf, ports: readonly number[]): string {
  const groups = Object.fromEntries(SERVICES.map((service, at) => [service, { port: ports[at] }]))
  return stringify({
    ...groups,
    database: Object.fromEntries(SCHEMAS.map(schema => [schema, urlOf(schema)])),
    network: { ...groups.network, driver: 'noop', cidr: CIDR },
    compute: { driver: 'noop' },
  })
}

/** Gives a copy of a state directory ports of its own, so that copies can be used side by side. */
function replacePorts(directory: string, from: readonly number[], to: readonly number[]): void {
  for (const name of ['krater.yaml', 'clouds.yaml', 'openrc', 'admin-openrc']) {
    const file = join(directory, name)
    const text = readFileSync(file, 'utf8')
    writeFileSync(
      file,
      from.reduce((changed, port, at) => changed.replaceAll(`${port}`, `${to[at]}`), text),
    )
  }
}

/** Listens on a port with TCP and UDP. @returns a function that ends it */
async function holdPort(port: number): Promise<() => void> {
  const tcp = createServer().listen(port, '127.0.0.1')
  const udp = createSocket('udp4').bind(port, '127.0.0.1')
  await Promise.all([once(tcp, 'listening'), once(udp, 'listening')])
  return () => {
    tcp.close()
    udp.close()
  }
}

/** A process that neither ends nor becomes ready in this time hangs. */
const LIMIT_MS = 120_000

function runCommand([file = '', ...args]: string[], cell: Cell, ready: RegExp | null): Promise<Ended> {
  const child: ChildProcess = spawn(file, args, {
    cwd: '/',
    env: cell.environment,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: LIMIT_MS,
    killSignal: 'SIGKILL',
  })
  const said = { stdout: '', stderr: '' }
  cell.onSilence = () => {
    cell.onSilence = null
    child.kill('SIGINT')
  }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', piece => {
      const wasReady = ready?.test(said.stdout)
      said[name] += piece
      if (ready?.test(said.stdout) && !wasReady) child.kill('SIGINT')
    })
  }
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', status => resolve({ status, ...said }))
  })
}

function digestOf(directory: string): string {
  const hash = createHash('sha256')
  for (const path of readdirSync(directory, { recursive: true }).map(String).sort()) {
    if (/^(log|run)(\/|$)/.test(path)) continue
    const { mode } = statSync(join(directory, path))
    hash.update(`${path} ${mode} `)
    if (statSync(join(directory, path)).isFile()) hash.update(readFileSync(join(directory, path)))
  }
  return hash.digest('hex')
}

type SilentServer = { port: number; stop: () => void }

/** A server that accepts connections and never answers. */
async function startSilentServer(onConnection: () => void): Promise<SilentServer> {
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket.on('error', () => undefined))
    onConnection()
  })
  const [port = 0] = await ownPorts(1)
  await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve))
  return {
    port,
    stop: () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}
