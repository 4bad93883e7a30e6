import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, openSync, writeFileSync } from 'node:fs'
import type { Log } from '../log/log.js'
import { identityOf } from '../process/process-table.js'
import { Supervisor } from '../process/supervisor.js'
import type { Boot } from '../protocol/boot.js'
import {
  HAPROXY_GROUP,
  HAPROXY_MASTER_SOCKET,
  HAPROXY_PID_FILE,
  HAPROXY_SERVER_STATE_FILE,
  HAPROXY_SOCKET_LINE,
  HAPROXY_USER,
} from '../protocol/paths.js'
import { waitFor } from '../time/wait.js'
import { HAPROXY_MESSAGES, lastOutput, outputSince, outputSize, workerFinished } from './messages.js'
import { type HaproxyObservation, RuntimeClient, type WorkerLoad } from './runtime/client.js'
import type { ProcTable } from './runtime/proc-table.js'
import { prepareChroot, prepareSandbox, prepareWorkingDirectory } from './sandbox.js'
import { HAPROXY_PROGRAM } from './validate.js'

/** A configuration that serves nothing, for a HAProxy whose old workers still have connections. */
export const IDLE_CONFIGURATION = `global
    ${HAPROXY_SOCKET_LINE}
    user ${HAPROXY_USER}
    group ${HAPROXY_GROUP}

backend idle
    timeout connect 1s
    timeout server 1s
`

const READY_MS = 20_000
/** How long to wait for the master's answer before a reload. */
const MASTER_MS = 2_000
/** Long enough to read a large configuration on a busy machine. */
const RELOAD_MS = 60_000

/** HAProxy failed to start or reload; `output` is what it printed. */
export class HaproxyFailure extends Error {
  constructor(
    message: string,
    readonly output: string,
  ) {
    super(message)
  }
}

export type HaproxyEvents = {
  /** Called before HAProxy reads its files. */
  beforeRead: () => void
  /** Called when HAProxy exits unexpectedly, before it is restarted. @returns the server-state file for the restart */
  onEnd: () => string
  /** Called when its first worker answers. */
  onReady: () => void
  /** Called before the current worker becomes an old one. */
  beforeReload: () => Promise<void>
}

export type HaproxyOptions = {
  /** The path of its configuration file. */
  configuration: string
  /** What the whole amphora may use. */
  limits: NonNullable<Boot['limits']>
  events: HaproxyEvents
  log: Log
}

/** The HAProxy of this amphora: a master, which its supervisor keeps running, and its workers. */
export class Haproxy {
  readonly #options: HaproxyOptions
  readonly #supervisor: Supervisor
  readonly #runtime = new RuntimeClient()
  /** The worker started last; null if unknown, as after HAProxy exited or if an earlier agent started it. */
  #ourWorker: number | null = null

  constructor(options: HaproxyOptions) {
    this.#options = options
    this.#supervisor = new Supervisor({
      name: 'HAProxy',
      program: HAPROXY_PROGRAM,
      argument: HAPROXY_MASTER_SOCKET,
      spawn: replaced => this.#spawn(replaced),
      onEnd: () => this.#ended(),
      log: options.log,
    })
  }

  /** Adopts the HAProxy of an earlier agent. @returns whether there is one */
  adopt(): boolean {
    return this.#supervisor.adopt()
  }

  /** Starts HAProxy unless it is already starting, and waits until its worker answers. @throws HaproxyFailure */
  async start(serverState: string): Promise<void> {
    const mark = outputSize()
    if (this.#supervisor.pid() !== null) return this.#untilReady(mark, this.#supervisor.failures())
    writeServerState(serverState)
    this.#supervisor.start()
    await this.#untilReady(mark, 0)
  }

  /**
   * Starts a new worker with the current configuration file, while the old one finishes its connections.
   * @throws HaproxyFailure if no new worker comes up; the old one then still serves
   */
  async reload(serverState: string): Promise<void> {
    const { events } = this.#options
    const master = this.#supervisor.pid()
    if (master !== null && !this.isReachable()) return this.#takeOver(serverState)
    const before = await waitFor(() => this.processes(), { timeoutMs: MASTER_MS })
    if (master === null || before === null) throw new HaproxyFailure('HAProxy does not answer', '')
    await this.#runtime.untilSettled()
    await events.beforeReload()
    events.beforeRead()
    writeServerState(serverState)
    prepareChroot()
    prepareWorkingDirectory(this.#options.configuration)
    const mark = outputSize()
    process.kill(master, 'SIGUSR2')
    const outcome = await waitFor(() => this.#reloadOutcome(master, before), { timeoutMs: RELOAD_MS })
    if (outcome === 'ready') return
    throw new HaproxyFailure(
      outcome === 'failed' ? 'HAProxy failed to reload' : `HAProxy did not reload within ${RELOAD_MS / 1000} s`,
      outputSince(mark),
    )
  }

  /** Stops accepting connections; HAProxy exits with the last one and is not restarted. */
  drain(): void {
    this.#supervisor.release('SIGUSR1')
  }

  stop(): Promise<void> {
    return this.#supervisor.stop()
  }

  /** The master's pid, or null. */
  pid(): number | null {
    return this.#supervisor.pid()
  }

  /** How many times in a row HAProxy exited soon after its start. */
  failures(): number {
    return this.#supervisor.failures()
  }

  /** Whether a worker that is gone exited with its last connection, and was not killed. */
  hasFinished(workerPid: number): boolean {
    return workerFinished(workerPid)
  }

  /** Whether this worker was started by a reload outside the agent, so that its configuration is unknown. */
  isForeign(workerPid: number): boolean {
    return this.#ourWorker !== null && this.#ourWorker !== workerPid
  }

  /**
   * Observes the current worker; null while it does not answer.
   * @param withServerRows also reads the servers' limits and failed checks, at a cost
   */
  async observe(withServerRows: boolean): Promise<HaproxyObservation | null> {
    const present = await this.#runtime.observe(withServerRows)
    if (present !== null) this.#ourWorker ??= present.workerPid
    return present
  }

  /** @see RuntimeClient.isReachable */
  isReachable(): boolean {
    return this.#runtime.isReachable()
  }

  /** @see RuntimeClient.command */
  command(text: string): Promise<string> {
    return this.#runtime.command(text)
  }

  /** @see RuntimeClient.commandTo */
  commandTo(workerPid: number, ...commands: readonly string[]): Promise<string> {
    return this.#runtime.commandTo(workerPid, ...commands)
  }

  /** @see RuntimeClient.processes */
  processes(): Promise<ProcTable | null> {
    return this.#runtime.processes()
  }

  /** @see RuntimeClient.workerLoads */
  workerLoads(): Promise<WorkerLoad[] | null> {
    return this.#runtime.workerLoads()
  }

  /** Stops supervising HAProxy and leaves it running. */
  close(): void {
    this.#supervisor.close()
  }

  #spawn(replaced: number | null): ChildProcess {
    const { configuration, limits, events } = this.#options
    events.beforeRead()
    const messages = openSync(HAPROXY_MESSAGES, 'a')
    const master = `${HAPROXY_MASTER_SOCKET},mode,600`
    const succession = replaced === null ? [] : ['-sf', String(replaced)]
    const [program = HAPROXY_PROGRAM, ...first] = prepareSandbox(limits)
    const args = [...first, '-W', '-S', master, '-f', configuration, '-p', HAPROXY_PID_FILE, ...succession]
    const cwd = prepareWorkingDirectory(configuration)
    const child = spawn(program, args, { cwd, detached: true, stdio: ['ignore', 'ignore', messages] })
    closeSync(messages)
    return child
  }

  #ended(): void {
    const { events, log } = this.#options
    log.error(`HAProxy's last output: ${lastOutput()}`)
    this.#ourWorker = null
    writeServerState(events.onEnd())
  }

  /**
   * Fails if HAProxy exits soon after its start. If it ran for a while and was killed, it is restarted: keep
   * waiting.
   */
  async #untilReady(mark: number, failures: number): Promise<void> {
    const outcome = await waitFor<'ready' | 'ended'>(
      async () => {
        if (this.#supervisor.failures() > failures) return 'ended'
        const worker = (await this.processes())?.workerPid ?? null
        if (worker === null || worker !== (await this.#runtime.answeringPid())) return null
        this.#ourWorker = worker
        return 'ready'
      },
      { timeoutMs: READY_MS },
    )
    if (outcome === 'ready') return this.#options.events.onReady()
    throw new HaproxyFailure(
      outcome === 'ended' ? 'HAProxy exited at its start' : `HAProxy did not answer within ${READY_MS / 1000} s`,
      outputSince(mark),
    )
  }

  /**
   * A HAProxy without its sockets takes no commands: starts a second one, and the first exits with its connections.
   */
  async #takeOver(serverState: string): Promise<void> {
    await this.#options.events.beforeReload()
    writeServerState(serverState)
    const mark = outputSize()
    this.#supervisor.replace()
    await this.#untilReady(mark, 0)
  }

  /** @returns null while the outcome is unknown */
  async #reloadOutcome(master: number, before: ProcTable): Promise<'ready' | 'failed' | null> {
    if (identityOf(master) === null) return 'failed'
    const now = await this.processes()
    if (now === null || now.reloads <= before.reloads) return null
    if (now.failed > 0) return 'failed'
    if (now.workerPid === null || now.workerPid === before.workerPid) return null
    if ((await this.#runtime.answeringPid()) !== now.workerPid) return null
    this.#ourWorker = now.workerPid
    return 'ready'
  }
}

function writeServerState(text: string): void {
  writeFileSync(HAPROXY_SERVER_STATE_FILE, text, { mode: 0o600 })
}
