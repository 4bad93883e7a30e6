import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { type ApiClient, signIn } from '../../../controller/cli/api-client.js'
import { runningPostmaster } from '../../../controller/cli/host/postgres.js'
import { instanceId } from '../../../controller/cli/state-directory/instance.js'
import { type ProcessName, runningProcesses } from '../../../controller/cli/state-directory/run-record.js'
import { findProcesses, type ProcessIdentity } from '../../../controller/process/process-identity.js'
import { testDirectory } from '../database/database.js'
import { restAfter } from '../eventually.js'
import { ownPorts } from '../ports.js'

const run = promisify(execFile)
const root = dirname(dirname(dirname(dirname(fileURLToPath(import.meta.url)))))
const program = join(root, 'dist/krater.js')

/** KRATER_TEST_NETWORK_DRIVER=ovn runs tests of a whole Krater on networks in OVN. */
const { KRATER_TEST_NETWORK_DRIVER: otherDriver } = process.env

export type CommandResult = { status: number; stdout: string; stderr: string }

/** A whole Krater: real processes, and its own PostgreSQL, ports and networks. */
export type Krater = {
  directory: string
  environment: NodeJS.ProcessEnv
  /** Five hexadecimal digits in the names of its namespaces. */
  instance: () => string
  /** Runs a command line such as `amphora list` to its end. */
  command: (...args: string[]) => Promise<CommandResult>
  /** Starts a command that runs until it is stopped. It is killed at the end of the test. */
  start: (...args: string[]) => ChildProcess
  /** `krater up --detach`. @throws Error with its output when it fails */
  up: () => Promise<void>
  running: () => ProcessName[]
  /** The PID of one process, the newest with its name. */
  pidOf: (name: ProcessName) => number
  /** kill -9 of one process, the newest with its name, or of PostgreSQL's main process. @returns its PID */
  kill: (name: ProcessName | 'postgres') => number
  /** kill -9 of everything of this instance: controllers, PostgreSQL, amphorae, members. */
  killEverything: () => Promise<void>
  api: (cloud?: 'krater' | 'krater-admin') => Promise<ApiClient>
  /** The real `openstack` command, with its answer as JSON (`undefined` when it prints none). */
  openstack: (args: readonly string[], cloud?: 'krater' | 'krater-admin') => Promise<unknown>
}

/**
 * A Krater that is not started yet, in a new directory. At the end of the test, all that it created is removed,
 * and the test fails when anything is left.
 * @param settings by their variables, such as KRATER_NETWORK_DRIVER
 */
export async function createKrater(t: Test, settings: Readonly<Record<string, string>> = {}): Promise<Krater> {
  await run(process.execPath, [join(root, 'scripts/build.js'), '--if-needed'], { timeout: 120_000 })
  const directory = mkdtempSync(join(tmpdir(), 'kr-'))
  const home = `${directory}-home`
  const environment = {
    ...(await ownEnvironment()),
    HOME: home,
    KRATER_STATE_DIR: directory,
    // The cheapest hash: tests log in all the time.
    KRATER_IDENTITY_PASSWORD_HASH_ROUNDS: '14',
    ...(otherDriver !== undefined && { KRATER_NETWORK_DRIVER: otherDriver }),
    ...settings,
  }
  const children: ChildProcess[] = []
  let lastInstance: string | null = null
  const instance = () => {
    lastInstance = instanceId(directory) ?? lastInstance
    if (lastInstance === null) throw new Error(`${directory} has no instance yet`)
    return lastInstance
  }

  const command = async (...args: string[]): Promise<CommandResult> =>
    run(process.execPath, [program, ...args], { env: environment, timeout: 180_000, maxBuffer: 16 * 1024 * 1024 }).then(
      ({ stdout, stderr }) => ({ status: 0, stdout, stderr }),
      (error: { code?: unknown; stdout?: string; stderr?: string }) => ({
        status: typeof error.code === 'number' ? error.code : -1,
        stdout: error.stdout ?? '',
        stderr: error.stderr ?? String(error),
      }),
    )

  const start = (...args: string[]) => {
    const child = spawn(process.execPath, [program, ...args], { env: environment, stdio: ['ignore', 'pipe', 'pipe'] })
    children.push(child)
    return child
  }

  t.teardown(async () => {
    for (const child of children) child.kill('SIGKILL')
    const name = instanceId(directory) ?? lastInstance
    const removed = await command('down', '--all', '--yes')
    const left = [...leftovers(directory, name), ...(removed.status === 0 ? [] : [removed.stderr])]
    for (const path of [directory, home]) rmSync(path, { recursive: true, force: true })
    if (left.length > 0) throw new Error(`Something is left behind: ${left.join('; ')}`)
  })

  const missing = (name: string): never => {
    throw new Error(`${name} does not run`)
  }
  const pidOf = (name: ProcessName): number => {
    const newest = runningProcesses(directory)
      .filter(record => record.name === name)
      .sort((a, b) => b.identity.startTicks - a.identity.startTicks)[0]
    return newest?.identity.pid ?? missing(name)
  }

  return {
    directory,
    environment,
    instance,
    command,
    start,
    up: async () => {
      const { status, stderr, stdout } = await command('up', '--detach')
      if (status !== 0) throw new Error(`krater up failed: ${stderr}\n${stdout}`)
    },
    running: () =>
      runningProcesses(directory)
        .map(({ name }) => name)
        .sort(),
    pidOf,
    kill: name => {
      const pid = name === 'postgres' ? (runningPostmaster(directory)?.pid ?? missing(name)) : pidOf(name)
      process.kill(pid, 'SIGKILL')
      return pid
    },
    killEverything: async () => {
      // Repeatedly, because a process may start another between the check and the kill.
      await until('every process has ended', async () => {
        const pids = [...ownProcesses(directory).map(({ pid }) => pid), ...(await namespacePids(instance()))]
        for (const pid of pids) killIfThere(pid)
        return pids.length === 0
      })
    },
    api: (cloud = 'krater') => signIn(directory, cloud),
    openstack: (args, cloud = 'krater') => openstack(directory, args, cloud),
  }
}

/** A running Krater. */
export async function startKrater(t: Test, settings: Readonly<Record<string, string>> = {}): Promise<Krater> {
  const krater = await createKrater(t, settings)
  await krater.up()
  return krater
}

/** Settings with which nothing touches the kernel, and amphorae are only rows. */
export const NOOP_DRIVERS = { KRATER_NETWORK_DRIVER: 'noop', KRATER_COMPUTE_DRIVER: 'noop' } as const

/** The URLs of the APIs by the variables that their examples use. */
export const apiUrls = (environment: NodeJS.ProcessEnv): Record<string, string> =>
  Object.fromEntries(
    ['IDENTITY', 'NETWORK', 'KEY_MANAGER', 'LOAD_BALANCER'].map(service => [
      `${service}_URL`,
      `http://127.0.0.1:${environment[`KRATER_${service}_PORT`]}`,
    ]),
  )

/**
 * Waits, checking a few times each second, less often when a check is slow. The limit ends a test that hangs; a busy
 * machine stays far below it.
 * @throws Error that names what did not become true in time
 */
export async function until(what: string, test: () => boolean | Promise<boolean>, seconds = 180): Promise<void> {
  const end = performance.now() + seconds * 1000
  for (;;) {
    const begun = performance.now()
    if (await test()) return
    const now = performance.now()
    if (now > end) throw new Error(`Not within ${seconds} s: ${what}`)
    await delay(restAfter(now - begun, 150))
  }
}

/** This process's environment without settings of a Krater or a cloud, with its own ports instead. */
async function ownEnvironment(): Promise<NodeJS.ProcessEnv> {
  const kept = Object.entries(process.env).filter(([name]) => !/^(KRATER|OS)_|^TAP/.test(name))
  const services = ['IDENTITY', 'NETWORK', 'LOAD_BALANCER', 'KEY_MANAGER', 'KEY_MANAGER_CHANNEL', 'HEALTH_MANAGER']
  const ports = await ownPorts(services.length + 1)
  return {
    ...Object.fromEntries(kept),
    ...Object.fromEntries(services.map((service, at) => [`KRATER_${service}_PORT`, String(ports[at])])),
    KRATER_LOAD_BALANCER_KEY_MANAGER_GATEWAY_PORT: String(ports.at(-1)),
  }
}

async function openstack(directory: string, args: readonly string[], cloud: string): Promise<unknown> {
  const { stdout } = await run('openstack', [...args], {
    env: {
      PATH: process.env.PATH,
      // The client caches its list of plugins, which saves a second at each start.
      HOME: testDirectory(),
      OS_CLIENT_CONFIG_FILE: join(directory, 'clouds.yaml'),
      OS_CLOUD: cloud,
      PYTHONWARNINGS: 'ignore',
    },
    timeout: 120_000,
    maxBuffer: 16 * 1024 * 1024,
  }).catch((error: { stderr?: string }) => {
    throw new Error(`openstack ${args.join(' ')}: ${error.stderr ?? error}`)
  })
  try {
    return JSON.parse(stdout)
  } catch {
    return undefined
  }
}

/** Processes whose command line names the state directory: controllers, PostgreSQL, machine holders. */
const ownProcesses = (directory: string): ProcessIdentity[] =>
  findProcesses(argv => argv.some(word => word.includes(directory)))

async function namespacePids(instance: string): Promise<number[]> {
  const lists = await Promise.all(
    namespacesOf(instance).map(name =>
      run('ip', ['netns', 'pids', name], { timeout: 10_000 }).then(
        ({ stdout }) => stdout.split('\n').filter(Boolean).map(Number),
        () => [],
      ),
    ),
  )
  return lists.flat()
}

function namespacesOf(instance: string): string[] {
  if (!existsSync('/run/netns')) return []
  return readdirSync('/run/netns').filter(name => name.startsWith('krater-') && name.includes(instance))
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** What is left of a removed instance, in words. */
export function leftovers(directory: string, instance: string | null): string[] {
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n')
  return [
    ...(existsSync(directory) ? readdirSync(directory).map(name => `file ${name}`) : []),
    ...ownProcesses(directory).map(({ pid }) => `process ${pid}`),
    ...mounts.filter(line => line.includes(directory)).map(line => `mount ${line}`),
    ...(instance === null
      ? []
      : [
          ...namespacesOf(instance).map(name => `namespace ${name}`),
          ...readdirSync('/sys/class/net')
            .filter(name => name.includes(instance))
            .map(name => `device ${name}`),
        ]),
  ]
}
