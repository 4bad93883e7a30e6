import { existsSync } from 'node:fs'
import { HAPROXY_MASTER_SOCKET, HAPROXY_SOCKET } from '../../protocol/paths.js'
import { waitFor } from '../../time/wait.js'
import { sendCommand } from './command.js'
import { type ProcTable, parseProcTable } from './proc-table.js'
import { parseServersState, type ServerState } from './servers-state.js'
import { isSettled } from './settled.js'
import { type ProxyRow, parseServerLimits, parseStat, SHOW_ALL, SHOW_PROXIES } from './stat.js'

/** A longer wait counts as no answer. */
const ANSWER_MS = 1_000
/** Additional time for each server's row. */
const ROW_MS = 0.1
/** A worker with tens of thousands of sessions lists them in a fraction of this. */
const WORKER_MS = 5_000
/** For the master, and for the little that a start or reload asks of the worker. */
const SHORT_MS = 2_000
/** Two of HAProxy's own limits of five seconds, after which it waits for nobody to teach it, and some room. */
const SETTLED_MS = 12_000

/** What a worker has under way; null when it does not say. */
export type WorkerLoad = { pid: number; underWay: number | null }

export type HaproxyObservation = {
  workerPid: number
  /** Of all its connections; null when it does not say. */
  limit: number | null
  proxies: ProxyRow[]
  servers: ServerState[]
  /** Limits of connections by the paths of the servers that have one; null when it was not asked for them. */
  serverLimits: ReadonlyMap<string, number> | null
}

/** Asks HAProxy over its two sockets: the master's, and the present worker's. */
export class RuntimeClient {
  /** How many servers it had when it last answered. */
  #serverCount: number | null = null

  /** False when somebody removed the sockets of one that runs. */
  isReachable(): boolean {
    return existsSync(HAPROXY_SOCKET) && existsSync(HAPROXY_MASTER_SOCKET)
  }

  /** @throws Error when HAProxy does not answer */
  command(text: string): Promise<string> {
    return sendCommand(HAPROXY_SOCKET, text)
  }

  /** Commands to any worker, also one that is ending, in one round trip; a few thousand characters at most. @throws Error */
  commandTo(workerPid: number, ...commands: readonly string[]): Promise<string> {
    const text = commands.map(command => `@!${workerPid} ${command}`).join(';')
    return sendCommand(HAPROXY_MASTER_SOCKET, text, WORKER_MS)
  }

  /** Null while the master does not answer, which it does not for a moment during a reload. */
  async processes(): Promise<ProcTable | null> {
    try {
      return parseProcTable(await sendCommand(HAPROXY_MASTER_SOCKET, 'show proc', SHORT_MS))
    } catch {
      return null
    }
  }

  /** How many requests, or connections of TCP, each worker has under way. Null while the master does not answer. */
  async underWay(): Promise<WorkerLoad[] | null> {
    const table = await this.processes()
    if (table === null) return null
    const workers = [table.workerPid, ...table.oldWorkerPids].filter(pid => pid !== null)
    return Promise.all(
      workers.map(async pid => {
        const sessions = await this.commandTo(pid, 'show sess').catch(() => '')
        // The command itself is a session too.
        const isAnswered = sessions.includes(' fe=GLOBAL ')
        return { pid, underWay: isAnswered ? (sessions.match(/^0x[0-9a-f]+: .* fe=(?!GLOBAL)/gm)?.length ?? 0) : null }
      }),
    )
  }

  /** The pid of the worker that answers on the runtime socket; null when none does. */
  async answeringPid(): Promise<number | null> {
    try {
      const found = /^Pid: (\d+)$/m.exec(await sendCommand(HAPROXY_SOCKET, 'show info', SHORT_MS))
      return found ? Number(found[1]) : null
    } catch {
      return null
    }
  }

  /**
   * What the present worker says of itself, by one question for all, since each costs a connection; null while it does not answer.
   * @param wantsServerLimits asks for more, which costs
   */
  async observe(wantsServerLimits: boolean): Promise<HaproxyObservation | null> {
    // The first observation tells how many servers there are, and so how long the answer may take.
    const withServerLimits = wantsServerLimits && this.#serverCount !== null
    const [rows, patience] = withServerLimits ? [SHOW_ALL, (this.#serverCount ?? 0) * ROW_MS] : [SHOW_PROXIES, 0]
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
        serverLimits: withServerLimits ? parseServerLimits(stat) : null,
      }
    } catch {
      return null
    }
  }

  /** Waits until the worker has learnt its stick tables: clients who come back to their member would lose it. */
  async untilSettled(): Promise<void> {
    await waitFor(
      async () =>
        isSettled(await sendCommand(HAPROXY_SOCKET, 'show peers;show table', ANSWER_MS).catch(() => '')) || null,
      { timeoutMs: SETTLED_MS, everyMs: 100 },
    )
  }
}
