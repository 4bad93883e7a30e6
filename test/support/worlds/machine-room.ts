import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { ip } from '../../../controller/network/local/ip-command.js'

const run = promisify(execFile)

export type CommandResult = { status: number; stdout: string; stderr: string }

/** A machine on the room's switch: its own network, processes and mounts, but the file system of the test. */
export type RoomMachine = {
  name: string
  address: string
  /** Runs a program to its end. */
  run: (argv: readonly [string, ...string[]], environment?: NodeJS.ProcessEnv) => Promise<CommandResult>
  /** Starts a program that ends with the machine. Its output is that of the test, unless `pipe` says otherwise. */
  start: (
    argv: readonly [string, ...string[]],
    options?: { environment?: NodeJS.ProcessEnv; log?: number },
  ) => ChildProcess
  /** Ends every process at once, as a power failure does. */
  powerOff: () => Promise<void>
  powerOn: () => Promise<void>
  isOn: () => boolean
  /** Takes it off the switch, or puts it back. */
  setCable: (isPlugged: boolean) => Promise<void>
}

export type MachineRoom = {
  add: (name: string) => Promise<RoomMachine>
  /** Called before the machines are switched off at the end, the latest first. */
  beforeEnd: (step: () => Promise<void>) => void
  /** Called once the machines are off: nothing writes any more. */
  afterEnd: (step: () => Promise<void>) => void
}

const FIRST_HOST = 11
const START_MS = 10_000

/** A switch for machines. The teardown removes it with its machines. */
export async function createMachineRoom(t: Test): Promise<MachineRoom> {
  const id = randomBytes(3).toString('hex')
  const room = `test-room-${id}`
  const machines: RoomMachine[] = []
  const steps: (() => Promise<void>)[] = []
  const lastSteps: (() => Promise<void>)[] = []
  await ip(['netns', 'add', room])
  await ip(['-n', room, 'link', 'add', 'switch', 'type', 'bridge', 'forward_delay', '0'])
  await ip(['-n', room, 'link', 'set', 'switch', 'up'])
  t.teardown(async () => {
    for (const step of steps.reverse()) await step()
    for (const machine of machines) await machine.powerOff()
    for (const step of lastSteps) await step()
    for (const { name } of machines) await ip(['netns', 'delete', `${room}-${name}`])
    await ip(['netns', 'delete', room])
  })
  return {
    add: async name => {
      const namespace = `${room}-${name}`
      const address = `10.203.0.${FIRST_HOST + machines.length}`
      await ip(['netns', 'add', namespace])
      await ip(['link', 'add', 'eth0', 'netns', namespace, 'type', 'veth', 'peer', 'name', name, 'netns', room])
      await ip(['-n', room, 'link', 'set', name, 'master', 'switch', 'up'])
      await ip(['-n', namespace, 'address', 'add', `${address}/24`, 'dev', 'eth0'])
      for (const device of ['lo', 'eth0']) await ip(['-n', namespace, 'link', 'set', device, 'up'])
      const machine = createMachine({ name, address, namespace, room })
      machines.push(machine)
      await machine.powerOn()
      return machine
    },
    beforeEnd: step => steps.push(step),
    afterEnd: step => lastSteps.push(step),
  }
}

/**
 * The first process of a machine: the list of namespaces in it is its own. /sys shows its own network devices, and still
 * the control groups, as on a machine that has just started.
 */
const FIRST_PROCESS = `
mount -t tmpfs -o mode=755 machine /run/netns
mkdir /run/netns/groups
mount --rbind /sys/fs/cgroup /run/netns/groups
mount -t sysfs sysfs /sys
mount --rbind /run/netns/groups /sys/fs/cgroup
umount --recursive --lazy /run/netns/groups
rmdir /run/netns/groups
echo on
exec sleep infinity
`

function createMachine({
  name,
  address,
  namespace,
  room,
}: {
  name: string
  address: string
  namespace: string
  room: string
}): RoomMachine {
  let first: { starter: ChildProcess; pid: number } | null = null
  const inside = (argv: readonly string[]): string[] => {
    if (first === null) throw new Error(`${name} is off`)
    return ['-t', String(first.pid), '-m', '-n', '-p', '--', ...argv]
  }
  return {
    name,
    address,
    run: (argv, environment) =>
      run('nsenter', inside(argv), {
        timeout: 240_000,
        maxBuffer: 16 * 1024 * 1024,
        ...(environment && { env: environment }),
      }).then(
        ({ stdout, stderr }) => ({ status: 0, stdout, stderr }),
        (error: { code?: unknown; stdout?: string; stderr?: string }) => ({
          status: typeof error.code === 'number' ? error.code : -1,
          stdout: error.stdout ?? '',
          stderr: error.stderr ?? String(error),
        }),
      ),
    start: (argv, { environment, log } = {}) =>
      spawn('nsenter', inside(argv), {
        stdio: ['ignore', log ?? 'pipe', log ?? 'pipe'],
        ...(environment && { env: environment }),
      }),
    powerOn: async () => {
      const words = ['--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', '--mount-proc']
      const network = `--net=/run/netns/${namespace}`
      const starter = spawn('nsenter', [network, 'unshare', ...words, 'sh', '-ec', FIRST_PROCESS], {
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      let problems = ''
      starter.stderr?.on('data', text => (problems += text))
      await new Promise<void>((resolve, reject) => {
        const limit = setTimeout(() => reject(new Error(`${name} does not start: ${problems}`)), START_MS)
        starter.stdout?.once('data', () => {
          clearTimeout(limit)
          resolve()
        })
      })
      const pid = Number(readFileSync(`/proc/${starter.pid}/task/${starter.pid}/children`, 'utf8').trim())
      first = { starter, pid }
    },
    powerOff: async () => {
      if (first === null) return
      const { starter, pid } = first
      first = null
      const ended = new Promise(resolve => starter.once('exit', resolve))
      process.kill(pid, 'SIGKILL')
      await ended
    },
    isOn: () => first !== null,
    setCable: async isPlugged => {
      await ip(['-n', room, 'link', 'set', name, isPlugged ? 'up' : 'down'])
    },
  }
}
