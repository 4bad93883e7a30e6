import { spawn } from 'node:child_process'
import { closeSync, existsSync, openSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import type { Log } from '../log/log.js'
import { identityOf } from '../process/process-table.js'
import { createSupervisor } from '../process/supervisor.js'
import type { Boot } from '../protocol/boot.js'
import {
  HAPROXY_GROUP,
  HAPROXY_MASTER_SOCKET,
  HAPROXY_PID_FILE,
  HAPROXY_SERVER_STATE_FILE,
  HAPROXY_SOCKET,
  HAPROXY_SOCKET_LINE,
  HAPROXY_USER,
  LOG_DIRECTORY,
} from '../protocol/paths.js'
import { waitFor } from '../time/wait.js'
import { type ProcTable, parseProcTable } from './proc-table.js'
import { sendCommand } from './runtime/command.js'
import { parseServersState, type ServerState } from './runtime/servers-state.js'
import { isSettled } from './runtime/settled.js'
import { type ProxyRow, parseServerLimits, parseStat, SHOW_ALL, SHOW_PROXIES } from './runtime/stat.js'
import { HAPROXY_PROGRAM, significantWords } from './validate.js'
import { prepareChroot, prepareWalls } from './walls.js'

/** A configuration that serves nothing: for a HAProxy whose old workers still have connections. */
export const IDLE_CONFIGURATION = `global
    ${HAPROXY_SOCKET_LINE}
    user ${HAPROXY_USER}
    group ${HAPROXY_GROUP}

backend idle
    timeout connect 1s
    timeout server 1s
`

/** What HAProxy prints: starting, reloading, dying. */
export const HAPROXY_MESSAGES = `${LOG_DIRECTORY}/haproxy-messages.log`

/** One that answers nothing for so long does not answer. */
const ANSWER_MS = 1_000
/** So much more it may need for each row of a server. */
const ROW_MS = 0.1
/** A worker with tens of thousands of sessions lists them in a fraction of this. */
const WORKER_MS = 5_000
const READY_MS = 20_000
/** Two of HAProxy's own limits of five seconds, after which it waits for nobody to teach it, and some room. */
const SETTLED_MS = 12_000
/** Exit codes of a worker that somebody has killed: SIGKILL, SIGTERM. */
const KILLED = ['137', '143']
/** Room for a large configuration to be read on a busy machine. */
const RELOAD_MS = 60_000

/** HAProxy did not do what it was asked; `words` is what it printed meanwhile. */
export class HaproxyFailure extends Error {
  constructor(
    message: string,
    readonly words: string,
  ) {
    super(message)
  }
}

export type Haproxy = {
  adopt: () => boolean
  /** Starts it, or waits for the one that is just starting, until its worker answers. @throws HaproxyFailure */
  start: (serverState: string) => Promise<void>
  /**
   * A new worker for the present configuration file, while the old one ends its connections in peace.
   * @throws HaproxyFailure when no new worker came up; the old one then still serves
   */
  reload: (serverState: string) => Promise<void>
  /** Accepts nothing any more and ends with its last connection; it is not started again. */
  drain: () => void
  /** How many requests, or connections of TCP, each of its workers has under way. Null while the master does not answer. */
  underWay: () => Promise<WorkerLoad[] | null>
  /** Whether a worker that is gone had come to its end: with its last connection, and nobody killed it. */
  hasFinished: (workerPid: number) => boolean
  stop: () => Promise<void>
  /** The master's pid, or null. */
  pid: () => number | null
  /** How often in a row it ended soon after its start. */
  failures: () => number
  /** @throws Error when HAProxy does not answer */
  command: (text: string) => Promise<string>
  /** False when somebody removed the sockets of one that runs. */
  isReachable: () => boolean
  /** What the present worker says of itself; null while it does not answer. @param withServerLimits asks for more, which costs */
  look: (withServerLimits: boolean) => Promise<HaproxyLook | null>
  /** Whether this worker was started by somebody else's reload, so that nobody knows what it has read. */
  isForeign: (workerPid: number) => boolean
  /** Commands to any worker, also one that is ending, in one round trip; a few thousand characters at most. @throws Error */
  commandTo: (workerPid: number, ...commands: readonly string[]) => Promise<string>
  /** Null while the master does not answer, which it does not for a moment during a reload. */
  processes: () => Promise<ProcTable | null>
  close: () => void
}

/** What a worker has under way; null when it does not say. */
export type WorkerLoad = { pid: number; underWay: number | null }

export type HaproxyLook = {
  workerPid: number
  /** Of all its connections; null when it does not say. */
  limit: number | null
  proxies: ProxyRow[]
  servers: ServerState[]
  /** Limits of connections by the paths of the servers that have one; null when it was not asked for them. */
  serverLimits: ReadonlyMap<string, number> | null
}

export type HaproxyEvents = {
  /** It is about to read its files. */
  beforeRead: () => void
  /** It ended without being asked to; called before it is started again. @returns the server-state file for that */
  onEnd: () => string
  /** Its first worker answers. */
  onReady: () => void
  /** The present worker is about to become an old one. */
  beforeReload: () => Promise<void>
}

/** @param limits what the whole amphora may use */
export function createHaproxy(
  configuration: string,
  limits: NonNullable<Boot['limits']>,
  events: HaproxyEvents,
  log: Log,
): Haproxy {
  const supervisor = createSupervisor({
    name: 'HAProxy',
    program: HAPROXY_PROGRAM,
    argument: HAPROXY_MASTER_SOCKET,
    spawn: replaced => {
      events.beforeRead()
      const messages = openSync(HAPROXY_MESSAGES, 'a')
      const master = `${HAPROXY_MASTER_SOCKET},mode,600`
      const succession = replaced === null ? [] : ['-sf', String(replaced)]
      const [program = HAPROXY_PROGRAM, ...first] = prepareWalls(limits)
      const words = [...first, '-W', '-S', master, '-f', configuration, '-p', HAPROXY_PID_FILE, ...succession]
      const child = spawn(program, words, {
        detached: true,
        stdio: ['ignore', 'ignore', messages],
      })
      closeSync(messages)
      return child
    },
    onEnd: () => {
      log.error(`HAProxy's last words: ${significantWords(readEnd(HAPROXY_MESSAGES, 4_000))}`)
      ourWorker = null
      writeServerState(events.onEnd())
    },
    log,
  })

  /** The worker that was started last; null until it is known, as after HAProxy ended or an earlier agent started it. */
  let ourWorker: number | null = null
  /** How many servers it had when it last answered. */
  let serverCount: number | null = null

  const command = (text: string) => sendCommand(HAPROXY_SOCKET, text)

  const processes = async () => {
    try {
      return parseProcTable(await sendCommand(HAPROXY_MASTER_SOCKET, 'show proc', 2_000))
    } catch {
      return null
    }
  }

  const commandTo = (workerPid: number, ...commands: readonly string[]) =>
    sendCommand(HAPROXY_MASTER_SOCKET, commands.map(command => `@!${workerPid} ${command}`).join(';'), WORKER_MS)

  const underWay = async (): Promise<WorkerLoad[] | null> => {
    const table = await processes()
    if (table === null) return null
    const workers = [table.workerPid, ...table.oldWorkerPids].filter(pid => pid !== null)
    return Promise.all(
      workers.map(async pid => {
        const sessions = await commandTo(pid, 'show sess').catch(() => '')
        // The command itself is a session too.
        const isAnswered = sessions.includes(' fe=GLOBAL ')
        return { pid, underWay: isAnswered ? (sessions.match(/^0x[0-9a-f]+: .* fe=(?!GLOBAL)/gm)?.length ?? 0) : null }
      }),
    )
  }

  /** The master tells of the end of each worker, before its own. One that has nothing left may still crash in cleaning up, as 2.6 does. */
  const hasFinished = (workerPid: number): boolean => {
    const ends = new RegExp(`worker \\(${workerPid}\\) exited with code (\\d+)`, 'g')
    const code = [...readFrom(HAPROXY_MESSAGES, 0).matchAll(ends)].at(-1)?.[1]
    return code !== undefined && !KILLED.includes(code)
  }

  /** The pid of the worker that answers on the runtime socket. */
  const answeringPid = async (): Promise<number | null> => {
    try {
      const found = /^Pid: (\d+)$/m.exec(await sendCommand(HAPROXY_SOCKET, 'show info', 2_000))
      return found ? Number(found[1]) : null
    } catch {
      return null
    }
  }

  /** One question for all, since each costs a connection. */
  const look = async (wantsServerLimits: boolean): Promise<HaproxyLook | null> => {
    // A first look tells how many servers there are, and so how long the answer may take.
    const withServerLimits = wantsServerLimits && serverCount !== null
    const [rows, patience] = withServerLimits ? [SHOW_ALL, (serverCount ?? 0) * ROW_MS] : [SHOW_PROXIES, 0]
    try {
      const [info = '', stat = '', state = ''] = (
        await sendCommand(HAPROXY_SOCKET, `show info;${rows};show servers state`, ANSWER_MS + patience)
      ).split('\n\n')
      const workerPid = Number(/^Pid: (\d+)$/m.exec(info)?.[1])
      if (!Number.isInteger(workerPid)) return null
      ourWorker ??= workerPid
      const servers = parseServersState(state)
      serverCount = servers.length
      const [, limit] = /^Maxconn: (\d+)$/m.exec(info) ?? []
      return {
        workerPid,
        limit: limit === undefined ? null : Number(limit),
        proxies: parseStat(stat),
        servers,
        serverLimits: withServerLimits ? parseServerLimits(stat) : null,
      }
    } catch {
      return null
    }
  }

  const start = async (serverState: string) => {
    const printed = sizeOf(HAPROXY_MESSAGES)
    if (supervisor.pid() !== null) return untilReady(printed, supervisor.failures())
    writeServerState(serverState)
    supervisor.start()
    await untilReady(printed, 0)
  }

  /** One that lived and is killed meanwhile is started again; only one that ends soon after its start has a reason of its own. */
  const untilReady = async (printed: number, failures: number) => {
    const outcome = await waitFor<'ready' | 'ended'>(
      async () => {
        if (supervisor.failures() > failures) return 'ended'
        const worker = (await processes())?.workerPid ?? null
        if (worker === null || worker !== (await answeringPid())) return null
        ourWorker = worker
        return 'ready'
      },
      { timeoutMs: READY_MS },
    )
    if (outcome === 'ready') return events.onReady()
    const words = significantWords(readFrom(HAPROXY_MESSAGES, printed))
    throw new HaproxyFailure(outcome === 'ended' ? 'HAProxy ended at its start' : 'HAProxy did not become ready', words)
  }

  /** A HAProxy whose sockets somebody removed cannot be told anything: another one takes its place, and it ends its connections in peace. */
  const takeOver = async (serverState: string) => {
    await events.beforeReload()
    writeServerState(serverState)
    const printed = sizeOf(HAPROXY_MESSAGES)
    supervisor.replace()
    await untilReady(printed, 0)
  }

  /** Clients who come back to their member would lose it. */
  const untilSettled = () =>
    waitFor(
      async () =>
        isSettled(await sendCommand(HAPROXY_SOCKET, 'show peers;show table', ANSWER_MS).catch(() => '')) || null,
      { timeoutMs: SETTLED_MS, everyMs: 100 },
    )

  const isReachable = () => existsSync(HAPROXY_SOCKET) && existsSync(HAPROXY_MASTER_SOCKET)

  const reload = async (serverState: string) => {
    const master = supervisor.pid()
    if (master !== null && !isReachable()) return takeOver(serverState)
    const before = await waitFor(processes, { timeoutMs: 2_000 })
    if (master === null || before === null) throw new HaproxyFailure('HAProxy does not answer', '')
    await untilSettled()
    await events.beforeReload()
    events.beforeRead()
    writeServerState(serverState)
    prepareChroot()
    const printed = sizeOf(HAPROXY_MESSAGES)
    process.kill(master, 'SIGUSR2')
    const outcome = await waitFor<'ready' | 'failed'>(
      async () => {
        if (identityOf(master) === null) return 'failed'
        const now = await processes()
        if (now === null || now.reloads <= before.reloads) return null
        if (now.failed > 0) return 'failed'
        if (now.workerPid === null || now.workerPid === before.workerPid) return null
        if ((await answeringPid()) !== now.workerPid) return null
        ourWorker = now.workerPid
        return 'ready'
      },
      { timeoutMs: RELOAD_MS },
    )
    if (outcome === 'ready') return
    const words = significantWords(readFrom(HAPROXY_MESSAGES, printed))
    throw new HaproxyFailure(
      outcome === 'failed' ? 'HAProxy refused to reload' : 'HAProxy did not finish to reload',
      words,
    )
  }

  return {
    adopt: supervisor.adopt,
    start,
    reload,
    drain: () => supervisor.release('SIGUSR1'),
    underWay,
    hasFinished,
    stop: supervisor.stop,
    pid: supervisor.pid,
    failures: supervisor.failures,
    command,
    commandTo,
    isReachable,
    isForeign: workerPid => ourWorker !== null && ourWorker !== workerPid,
    look,
    processes,
    close: supervisor.close,
  }
}

function writeServerState(text: string): void {
  writeFileSync(HAPROXY_SERVER_STATE_FILE, text, { mode: 0o600 })
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}

function readFrom(path: string, offset: number): string {
  try {
    const bytes = readFileSync(path)
    // The file may have been cut meanwhile.
    return bytes.subarray(Math.min(offset, bytes.length)).toString('utf8')
  } catch {
    return ''
  }
}

function readEnd(path: string, size: number): string {
  return readFrom(path, Math.max(0, sizeOf(path) - size))
}
