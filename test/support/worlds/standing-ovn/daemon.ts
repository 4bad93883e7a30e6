import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { eventually } from '../../eventually.js'

export const run = promisify(execFile)

/** A daemon of OVN or Open vSwitch, with a directory of its own for its sockets and log. */
export type Daemon = {
  start: () => Promise<void>
  /** Ends it by this signal, and waits for its end. */
  end: (signal?: NodeJS.Signals) => Promise<void>
  /** Sends it a signal that does not end it. */
  signal: (signal: NodeJS.Signals) => void
  /** Runs a command of ovs-appctl in it. */
  control: (...words: string[]) => Promise<string>
}

/**
 * A daemon, not started yet. It ends with the test.
 * @param options.within words before its own, such as those of `ip netns exec`
 * @param options.bridges directory of the sockets of the switch's bridges
 * @param options.farewell the command of ovs-appctl after which it ends; without one, it is killed
 */
export function daemon(
  t: Test,
  directory: string,
  argv: readonly string[],
  {
    within = [],
    bridges = directory,
    farewell,
  }: { within?: readonly string[]; bridges?: string; farewell?: readonly string[] } = {},
): Daemon {
  const socket = join(directory, 'control')
  let child: ChildProcess | null = null
  mkdirSync(directory, { recursive: true })
  const isOver = () => child === null || child.exitCode !== null || child.signalCode !== null
  const end = async (signal: NodeJS.Signals = 'SIGTERM') => {
    if (child === null || isOver()) return
    const ended = once(child, 'exit')
    child.kill('SIGCONT')
    child.kill(signal)
    await ended
  }
  const control = async (...words: string[]) => (await run('ovs-appctl', ['-T', '20', '-t', socket, ...words])).stdout
  t.teardown(async () => {
    if (farewell !== undefined && !isOver()) {
      await control(...farewell)
      await eventually(`${argv[0]} has ended`, isOver, 20_000)
    }
    await end('SIGKILL')
  })
  return {
    start: async () => {
      rmSync(socket, { force: true })
      const words = [...within, ...argv, `--log-file=${join(directory, 'log')}`]
      // ovn-controller has no option for this socket.
      if (!argv[0]?.endsWith('ovn-controller')) words.push(`--unixctl=${socket}`)
      const [program = '', ...rest] = words
      const started = spawn(program, rest, {
        stdio: 'ignore',
        env: { ...process.env, OVS_RUNDIR: bridges, OVN_RUNDIR: directory },
      })
      child = started
      const ready = argv[0]?.endsWith('ovn-controller') ? join(directory, `ovn-controller.${started.pid}.ctl`) : socket
      await eventually(`${argv[0]} answers`, async () => {
        if (started.exitCode !== null) throw new Error(`${words.join(' ')} ended with ${started.exitCode}`)
        return existsSync(ready)
      })
    },
    end,
    signal: signal => void child?.kill(signal),
    control,
  }
}
