import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { lastLines } from '../../../controller/cli/host/log-files.js'
import type { CommandResult, MachineRoom, RoomMachine } from './machine-room.js'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../../..')
const program = join(root, 'dist/krater.js')

/** A controller host: a machine with a state directory of its own. */
export type ControllerHost = {
  machine: RoomMachine
  directory: string
  /** Runs a command line such as `status --json` to its end. */
  krater: (...args: string[]) => Promise<CommandResult>
  /** As krater, and fails the test if the command fails. @returns its output */
  must: (...args: string[]) => Promise<string>
  /** The status of a request to an address, from this machine; 0 without an answer. */
  ask: (url: string) => Promise<number>
  environment: NodeJS.ProcessEnv
}

/** Adds a machine for a controller host. At the end everything that Krater made on it is removed. */
export async function addControllerHost(t: Test, room: MachineRoom, name: string): Promise<ControllerHost> {
  await run(process.execPath, [join(root, 'scripts/build.js'), '--if-needed'], { timeout: 120_000 })
  const machine = await room.add(name)
  const directory = mkdtempSync(join(tmpdir(), 'kr-'))
  const kept = Object.entries(process.env).filter(([variable]) => !/^(KRATER|OS)_|^TAP/.test(variable))
  const environment = {
    ...Object.fromEntries(kept),
    HOME: directory,
    KRATER_STATE_DIR: directory,
    KRATER_IDENTITY_PASSWORD_HASH_ROUNDS: '14',
  }
  const krater = (...args: string[]) => machine.run([process.execPath, program, ...args], environment)
  const must = async (...args: string[]) => {
    const { status, stdout, stderr } = await krater(...args)
    if (status !== 0) {
      const logs = ['load-balancer-api', 'worker'].map(log => lastLines(join(directory, `log/${log}.log`), 5))
      throw new Error(
        `krater ${args.join(' ')} on ${name} ends with ${status}: ${stderr}\n${stdout}\nIts logs: ${logs.join('\n')}`,
      )
    }
    return stdout
  }
  room.beforeEnd(async () => {
    if (!machine.isOn()) await machine.powerOn()
    const removed = await krater('down', '--all', '--yes')
    rmSync(directory, { recursive: true, force: true })
    if (removed.status !== 0) throw new Error(`${name} cannot be cleared: ${removed.stderr}`)
  })
  t.comment(`${name} is ${machine.address}`)
  return {
    machine,
    directory,
    krater,
    must,
    ask: async url => {
      const { stdout } = await machine.run(['curl', '-s', '-m', '2', '-o', '/dev/null', '-w', '%{http_code}', url])
      return Number(stdout)
    },
    environment,
  }
}
