import { existsSync } from 'node:fs'
import { HAPROXY_MASTER_SOCKET, HAPROXY_SOCKET } from '../../protocol/paths.js'
import { waitFor } from '../../time/wait.js'
import { sendCommand } from './command.js'
import { type ProcTable, parseProcTable } from './proc-table.js'
import { parseServersState, type ServerState } from './servers-state.js'
import { isSettled } from './settled.js'
import {
  type ProxyRow,
  parseFailedChecks,
  parseServerLimits,
  parseStat,
  type ReadCheck,
  SHOW_ALL,
  SHOW_PROXIES,
} from './stat.js'

/** Timeout of an observation. */
const ANSWER_MS = 1_000
/** Additional time for each server's row. */
const ROW_MS = 0.1
/** A worker with tens of thousands of sessions lists them in a fraction of this. */
const WORKER_MS = 5_000
/** Timeout for the master, and for the worker's short answers during a start or reload. */
const SHORT_MS = 2_000
/** HAProxy stops waiting to be taught after two timeouts of five seconds; this leaves some margin. */
const SETTLED_MS = 12_000

/** How many sessions a worker has; null if it does not answer. */
export type WorkerLoad = { pid: number; openSessions: number | null }

export type HaproxyObservation = {
  workerPid: number
  /** HAProxy's global connection limit; null if it does not report one. */
  limit: number | null
  proxies: ProxyRow[]
  servers: ServerState[]
  /** Connection limits by server path, of servers that have one; null if not requested. */
  serverLimits: ReadonlyMap<string, number> | null
  /** Why servers are down, by path; null if not requested. */
  failedChecks: ReadonlyMap<string, ReadCheck> | null
}

/** Sends commands to HAProxy's two sockets: the master's and the current worker's. */
export class RuntimeClient {
  /** The number of servers in the last answer. */
  #serverCount: number | null = null

  /** Whether the sockets exist; if HAProxy runs and they do not, they were removed. */
  isReachable(): boolean {
    return existsSync(HAPROXY_SOCKET) && existsSync(HAPROXY_MASTER_SOCKET)
  }

  /** @throws Error if HAProxy does not answer */
  command(text: string): Promise<string> {
    return sendCommand(HAPROXY_SOCKET, text)
  }

  /**
   * Sends commands to any worker, also an old one, in one round trip; at most a few thousand characters.
   * @throws Error
   */
  commandTo(workerPid: number, ...commands: readonly string[]): Promise<string> {
    const text = commands.map(command => `@!${workerPid} ${command}`).join(';')
    return sendCommand(HAPROXY_MASTER_SOCKET, text, WORKER_MS)
  }

  /** Null while the master does not answer, as happens briefly during a reload. */
  async processes(): Promise<ProcTable | null> {
    try {
      return parseProcTable(await sendCommand(HAPROXY_MASTER_SOCKET, 'show proc', SHORT_MS))
    } catch {
      return null
    }
  }

  /** The number of open requests, or TCP connections, of each worker. Null while the master does not answer. */
  async workerLoads(): Promise<WorkerLoad[] | null> {
    const table = await this.processes()
    if (table === null) return null
    const workers = [table.workerPid, ...table.oldWorkerPids].filter(pid => pid !== null)
    return Promise.all(
      workers.map(async pid => {
        const sessions = await this.commandTo(pid, 'show sess').catch(() => '')
        // The command itself counts as a session of the frontend GLOBAL.
        const isAnswered = sessions.includes(' fe=GLOBAL ')
        return {
          pid,
          openSessions: isAnswered ? (sessions.match(/^0x[0-9a-f]+: .* fe=(?!GLOBAL)/gm)?.length ?? 0) : null,
        }
      }),
    )
  }

  /** The pid of the worker that answers on the runtime socket; null if none does. */
  async answeringPid(): Promise<number | null> {
    try {
      const found = /^Pid: (\d+)$/m.exec(await sendCommand(HAPROXY_SOCKET, 'show info', SHORT_MS))
      return found ? Number(found[1]) : null
    } catch {
      return null
    }
  }

  /**
   * Observes the current worker with a single query, since each costs a connection; null while it does not answer.
   * @param wantsServerRows also reads the servers' limits and failed checks, at a cost
   */
  async observe(wantsServerRows: boolean): Promise<HaproxyObservation | null> {
    // The number of servers in an earlier observation determines how long the answer may take.
    const withServerRows = wantsServerRows && this.#serverCount !== null
    const [rows, patience] = withServerRows ? [SHOW_ALL, (this.#serverCount ?? 0) * ROW_MS] : [SHOW_PROXIES, 0]
    try {
      const [info = '', stat = '', state = ''] = (
        await sendCommand(HAPROXY_SOCKET, `show info;${rows};show servers state`, ANSWER_MS + patience)
      ).split('\n\n')
      const workerPid = Number(/^Pid: (\d+)$/m.exec(info)?.[1])
      if (!Number.isInteger(workerPid)) return null
      const servers = parseServersState(state)
      this.#serverCount = servers.length
      const [, limit] = /^Maxconn: (\d+)$/m.exec(info) ?? []
      return {
        workerPid,
        limit: limit === undefined ? null : Number(limit),
        proxies: parseStat(stat),
        servers,
        serverLimits: withServerRows ? parseServerLimits(stat) : null,
        failedChecks: withServerRows ? parseFailedChecks(stat) : null,
      }
    } catch {
      return null
    }
  }

  /** Waits until the worker has learned its stick tables; otherwise returning clients would lose their member. */
  async untilSettled(): Promise<void> {
    await waitFor(
      async () =>
        isSettled(await sendCommand(HAPROXY_SOCKET, 'show peers;show table', ANSWER_MS).catch(() => '')) || null,
      { timeoutMs: SETTLED_MS, everyMs: 100 },
    )
  }
}
