import { HEARTBEAT_KEY_ID, heartbeatKey } from '../compute/amphora-identity.js'
import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { sql } from '../database/sql.js'
import { recordHeardOfOthers } from '../hosts/heard.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'
import { repeat } from '../process/repeat.js'
import { type HeardAmphora, HeardAmphorae } from './heard-amphorae.js'
import { recordImpairments } from './operating/impairment.js'
import type { HealthManagerSettings } from './options.js'
import { type Refusal, startReceiver } from './receiver.js'
import { lastHeard, recordBeats } from './record-beats.js'
import { recordRepairs } from './record-repairs.js'
import { recordReports } from './record-reports.js'
import type { ReplayWindow } from './replay-window.js'
import { recheckMismatches, recheckSilent, retryReturned } from './watch.js'

export type HealthManagerOptions = {
  /** Connected with the role of the load balancer service. */
  database: Database
  /** Addresses to listen on. `config.port` 0 picks a free port. */
  hosts: readonly [string, ...string[]]
  /** This controller host; null for one that nobody knows. */
  hostId: string | null
  config: HealthManagerSettings
  masterKey: Buffer
  log: Logger
}

export type RunningHealthManager = { host: string; port: number; stop: () => Promise<void> }

const WRITING = 'writing heartbeats'
const WATCHING = 'watching amphorae'
const WRITE_SECONDS = 0.5
const WATCH_SECONDS = 2
/** An amphora that was heard within this time is alive: two looks, with one lost heartbeat. */
const JUST_HEARD_MS = 7_000
/** Minimum time between two rechecks for the same silent amphora. */
const RECHECK_PAUSE_MS = 20_000
/** How long to keep a report of an unknown configuration: its apply may not have been recorded yet. */
const UNRECORDED_APPLY_MS = 10_000
/** Silence after which an amphora is forgotten: it is gone, or starts afresh. */
const FORGET_MS = 3_600_000

/**
 * Turns heartbeats into liveness, operating statuses, statistics and rechecks. A datagram only updates memory,
 * one entry per amphora. Twice a second, a few statements write what is new. Any number of health managers may
 * run: all receive every heartbeat, and each write applies only if it is newer than the stored one.
 */
export async function startHealthManager(options: HealthManagerOptions): Promise<RunningHealthManager> {
  const { database, hosts, config, log } = options
  const manager = new HealthManager(options, await replayWindows(database))
  const receiver = await startReceiver({
    hosts,
    port: config.port,
    windows: manager.windows,
    keyOf: (keyId, amphoraId) => manager.keyOf(keyId, amphoraId),
    onDatagram: datagram => manager.heard.remember(datagram),
    onRefused: (refusal, from) => manager.countRefusal(refusal, from),
  })
  const stopping = new AbortController()
  const loops = manager.loops().map(({ name, seconds, work }) => repeat(name, seconds, stopping.signal, log, work))
  log.info({ host: receiver.host, port: receiver.port }, 'health manager listens')
  return {
    host: receiver.host,
    port: receiver.port,
    stop: async () => {
      await receiver.stop()
      stopping.abort()
      await Promise.all(loops)
      await manager.write()
    },
  }
}

/** Restores the replay windows, so that no datagram from before this start is accepted again. */
async function replayWindows(database: Database): Promise<Map<string, ReplayWindow>> {
  const heard = await lastHeard(database)
  return new Map(
    heard.map(({ amphoraId, bootId, seq, sentMs }) => [
      amphoraId,
      // Which of the last numbers arrived is unknown, so none below the highest is accepted.
      { bootId, highest: seq, seen: (1n << 64n) - 1n, sentMs },
    ]),
  )
}

class HealthManager {
  readonly windows: Map<string, ReplayWindow>
  readonly heard = new HeardAmphorae()
  readonly #options: HealthManagerOptions
  readonly #keys = new Map<string, Buffer>()
  readonly #refused = new Map<Refusal, number>()
  /** Time of the last recheck for each silent amphora. */
  readonly #rechecked = new Map<string, number>()
  #databaseFailedAt = performance.now()

  constructor(options: HealthManagerOptions, windows: Map<string, ReplayWindow>) {
    this.#options = options
    this.windows = windows
  }

  /** An amphora's heartbeat key; null for an unknown key id. */
  keyOf(keyId: number, amphoraId: string): Buffer | null {
    if (keyId !== HEARTBEAT_KEY_ID) return null
    const known = this.#keys.get(amphoraId)
    if (known !== undefined) return known
    const key = heartbeatKey(this.#options.masterKey, keyId, amphoraId)
    // Cached only for amphorae that were heard: a forged id costs a derivation but no memory.
    if (this.windows.has(amphoraId)) this.#keys.set(amphoraId, key)
    return key
  }

  /** Logs the first, tenth, hundredth ... refusal of each kind. */
  countRefusal(refusal: Refusal, from: string): void {
    const count = (this.#refused.get(refusal) ?? 0) + 1
    this.#refused.set(refusal, count)
    if (Number.isInteger(Math.log10(count))) this.#options.log.warn({ refusal, from, count }, 'datagrams refused')
  }

  /** Periodic tasks. */
  loops(): { name: string; seconds: number; work: () => Promise<void> }[] {
    return [
      { name: WRITING, seconds: WRITE_SECONDS, work: () => this.write() },
      { name: WATCHING, seconds: WATCH_SECONDS, work: () => this.#guarded(WATCHING, () => this.#watch()) },
    ]
  }

  /** Writes what is new. A failure is logged; the next write retries. */
  write(): Promise<void> {
    return this.#guarded(WRITING, () => this.#write())
  }

  /** Never fails, so that repeat() does not lengthen its pauses: writes resume as soon as the database is back. */
  async #guarded(name: string, work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      this.#databaseFailedAt = performance.now()
      this.#options.log.error({ err: error }, `${name} failed; retrying`)
    }
  }

  async #write(): Promise<void> {
    const { database, config, log } = this.#options
    const { beats, reports, pictures } = this.heard.take()
    try {
      await recordBeats(
        database,
        beats.map(({ heard }) => heard),
        { beatInterval: config.beat_interval, staleAfter: config.stale_after },
      )
      for (const mismatch of await writeRepairs(database, reports)) {
        log.error(mismatch, 'an amphora found another certificate than it should serve, and took it back')
      }
      const skipped = new Set(await recordReports(database, pictures))
      this.heard.putBackPictures(
        pictures.filter(
          ({ amphoraId }) => skipped.has(amphoraId) && this.heard.silentMs(amphoraId) < UNRECORDED_APPLY_MS,
        ),
      )
    } catch (error) {
      this.heard.putBackBeats(beats)
      this.heard.putBackPictures(pictures)
      throw error
    }
  }

  async #watch(): Promise<void> {
    const { database, config, hostId } = this.#options
    for (const id of this.heard.forgetSilent(FORGET_MS)) this.#keys.delete(id)
    if (hostId !== null) await recordHeardOfOthers(database, hostId, this.heard.heardWithin(JUST_HEARD_MS))
    const woken = [...(await recheckMismatches(database, config.replace_after)), ...(await retryReturned(database))]
    await recordImpairments(database, config.stale_after)
    const graceOver = performance.now() - this.#databaseFailedAt > config.stale_after * 1000
    if (graceOver) woken.push(...(await this.#recheckSilent()))
    for (const id of woken) await execute(database, sql`SELECT pg_notify(${WAKE_CHANNEL}, ${id})`)
  }

  /** @returns ids of load balancers to recheck because of silent amphorae */
  async #recheckSilent(): Promise<string[]> {
    const { database, config, log } = this.#options
    const now = performance.now()
    const recent = this.heard.heardWithin(config.stale_after * 1000)
    const silent = await recheckSilent(database, config.stale_after, [
      ...recent,
      ...recentlyRechecked(this.#rechecked, now),
    ])
    for (const { id, amphoraIds } of silent) {
      for (const amphoraId of amphoraIds) this.#rechecked.set(amphoraId, now)
      log.warn({ loadBalancer: id, amphorae: amphoraIds }, 'silent amphora: requesting a recheck of its load balancer')
    }
    return silent.map(({ id }) => id)
  }
}

async function writeRepairs(
  database: Database,
  amphorae: readonly HeardAmphora[],
): Promise<{ amphoraId: string; text: string }[]> {
  const reported = amphorae.map(amphora => ({ amphora, repairs: [...amphora.repairs.values()] }))
  const mismatches = await recordRepairs(
    database,
    reported.map(({ amphora, repairs }) => ({ amphoraId: amphora.heard.amphoraId, repairs })),
  )
  for (const { amphora, repairs } of reported) {
    for (const { atMs } of repairs) {
      amphora.repairs.delete(atMs)
      amphora.repairedMs = Math.max(amphora.repairedMs, atMs)
    }
  }
  return mismatches
}

function recentlyRechecked(rechecked: Map<string, number>, now: number): string[] {
  for (const [id, at] of rechecked) if (now - at > RECHECK_PAUSE_MS) rechecked.delete(id)
  return [...rechecked.keys()]
}
