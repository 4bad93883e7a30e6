import type { Beat, Report } from '../../amphora-agent/protocol/heartbeat.js'
import type { Repair } from '../../amphora-agent/protocol/repairs.js'
import { HEARTBEAT_KEY_ID, heartbeatKey } from '../compute/amphora-identity.js'
import type { Database } from '../database/connection.js'
import { execute } from '../database/query.js'
import { sql } from '../database/sql.js'
import { WAKE_CHANNEL } from '../load-balancer/change/wake-channel.js'
import type { Logger } from '../log/log.js'
import { repeat } from '../process/repeat.js'
import { recordImpairments } from './impairment.js'
import type { HealthManagerSettings } from './options.js'
import { addReport, type Picture } from './picture.js'
import { type Refusal, startReceiver } from './receiver.js'
import { type Heard, lastHeard, recordBeats } from './record-beats.js'
import { recordRepairs } from './record-repairs.js'
import { recordReports } from './record-reports.js'
import { CLOCK_TOLERANCE_MS, type ReplayWindow } from './replay-window.js'
import { recheckMismatches, recheckSilent, retryReturned } from './watch.js'

export type HealthManagerOptions = {
  /** As the load balancer service's role. */
  database: Database
  /** Where amphorae send to; port 0 chooses a free one. */
  host: string
  config: HealthManagerSettings
  masterKey: Buffer
  log: Logger
}

export type RunningHealthManager = { host: string; port: number; stop: () => Promise<void> }

const WRITE_SECONDS = 0.5
const WATCH_SECONDS = 2
/** A silent amphora whose load balancer was looked at is left alone this long before the next look. */
const RECHECK_PAUSE_MS = 20_000
/** How long a report of an unknown configuration waits for the record of the apply that it tells of. */
const PATIENCE_MS = 10_000
/** One that is silent for so long is gone, or begins anew. */
const FORGET_MS = 3_600_000

/** Everything heard of one amphora since this process began. */
type Amphora = {
  heard: Heard
  picture: Picture | undefined
  counted: Counting
  heardAtMs: number
  /** What it repaired, by the times that tell repairs apart, until that is written; and the time of the last one that is. */
  repairs: Map<number, Repair>
  repairedMs: number
}

type Counting = { listeners: Set<number>; pools: Set<number> }

/**
 * Heartbeats in; liveness, operating statuses, statistics and rechecks out. Datagrams only change memory, one entry per amphora; twice a second
 * what is new is written in a few statements. Any number of health managers may run: all get every beat, and each write asks whether it is news.
 */
export async function startHealthManager({
  database,
  host,
  config,
  masterKey,
  log,
}: HealthManagerOptions): Promise<RunningHealthManager> {
  const amphorae = new Map<string, Amphora>()
  const unwritten = { beats: new Set<string>(), reports: new Set<string>() }
  const refused = new Map<Refusal, number>()
  const keys = new Map<string, Buffer>()
  const windows = new Map<string, ReplayWindow>(
    (await lastHeard(database)).map(({ amphoraId, bootId, seq, sentMs }) => [
      amphoraId,
      // What came just before a restart is unknown, so nothing below the last number is accepted again.
      { bootId, highest: seq, seen: (1n << 64n) - 1n, sentMs },
    ]),
  )

  const receiver = await startReceiver({
    host,
    port: config.port,
    windows,
    keyOf: (keyId, amphoraId) => {
      if (keyId !== HEARTBEAT_KEY_ID) return null
      const known = keys.get(amphoraId)
      if (known !== undefined) return known
      const key = heartbeatKey(masterKey, keyId, amphoraId)
      // Only amphorae that were heard are remembered: forged ids cost a derivation each, and no memory.
      if (windows.has(amphoraId)) keys.set(amphoraId, key)
      return key
    },
    onDatagram: datagram => remember(amphorae, unwritten, datagram),
    onRefused: (refusal, from) => {
      const count = (refused.get(refusal) ?? 0) + 1
      refused.set(refusal, count)
      if (Number.isInteger(Math.log10(count))) log.warn({ refusal, from, count }, 'datagrams refused so far')
    },
  })

  const rechecked = new Map<string, number>()
  let databaseFailedAt = performance.now()

  const silentMs = (amphoraId: string) => performance.now() - (amphorae.get(amphoraId)?.heardAtMs ?? 0)

  const write = async () => {
    const take = (ids: Set<string>) => {
      const taken = [...ids].flatMap(id => amphorae.get(id) ?? [])
      ids.clear()
      return taken
    }
    const beats = take(unwritten.beats)
    const reports = take(unwritten.reports)
    const pictures = reports.flatMap(({ heard: { amphoraId, vrrpMaster }, picture, counted }) =>
      picture === undefined ? [] : [{ amphoraId, vrrpMaster, picture, counted }],
    )
    for (const amphora of reports) amphora.counted = nothingCounted()
    const putBack = (of: typeof pictures) => {
      for (const { amphoraId, counted } of of) {
        unwritten.reports.add(amphoraId)
        const again = amphorae.get(amphoraId)?.counted
        for (const index of counted.listeners) again?.listeners.add(index)
        for (const index of counted.pools) again?.pools.add(index)
      }
    }
    try {
      await recordBeats(
        database,
        beats.map(({ heard }) => heard),
        { beatInterval: config.beat_interval, staleAfter: config.stale_after },
      )
      await writeRepairs(database, reports)
      const passedOver = new Set(await recordReports(database, pictures))
      putBack(pictures.filter(({ amphoraId }) => passedOver.has(amphoraId) && silentMs(amphoraId) < PATIENCE_MS))
    } catch (error) {
      // The newest of each amphora is written with the next try; nothing piles up.
      for (const { heard } of beats) unwritten.beats.add(heard.amphoraId)
      putBack(pictures)
      throw error
    }
  }

  const watch = async () => {
    for (const id of amphorae.keys()) {
      if (silentMs(id) < FORGET_MS) continue
      amphorae.delete(id)
      keys.delete(id)
    }
    const woken = [...(await recheckMismatches(database, config.replace_after)), ...(await retryReturned(database))]
    await recordImpairments(database, config.stale_after)
    const graceOver = performance.now() - databaseFailedAt > config.stale_after * 1000
    if (graceOver) {
      const now = performance.now()
      const recent = [...amphorae]
        .filter(([, { heardAtMs }]) => now - heardAtMs < config.stale_after * 1000)
        .map(([id]) => id)
      const silent = await recheckSilent(database, config.stale_after, [...recent, ...pausing(rechecked, now)])
      for (const { id, amphoraIds } of silent) {
        for (const amphoraId of amphoraIds) rechecked.set(amphoraId, now)
        log.warn({ loadBalancer: id, amphorae: amphoraIds }, 'silent amphora: asking for a second opinion')
        woken.push(id)
      }
    }
    for (const id of woken) await execute(database, sql`SELECT pg_notify(${WAKE_CHANNEL}, ${id})`)
  }

  // Without the longer pauses of repeat(): what is heard is written as soon as the database is there.
  const guarded = (name: string, work: () => Promise<void>) => async () => {
    try {
      await work()
    } catch (error) {
      databaseFailedAt = performance.now()
      log.error({ err: error }, `${name} failed; it is tried again`)
    }
  }
  const stopping = new AbortController()
  const loops = [
    repeat('writing heartbeats', WRITE_SECONDS, stopping.signal, log, guarded('writing heartbeats', write)),
    repeat('watching amphorae', WATCH_SECONDS, stopping.signal, log, guarded('watching amphorae', watch)),
  ]
  log.info({ host: receiver.host, port: receiver.port }, 'health manager listens')
  return {
    host: receiver.host,
    port: receiver.port,
    stop: async () => {
      await receiver.stop()
      stopping.abort()
      await Promise.all(loops)
      await guarded('writing heartbeats', write)()
    },
  }
}

const nothingCounted = (): Counting => ({ listeners: new Set(), pools: new Set() })

function remember(
  amphorae: Map<string, Amphora>,
  unwritten: { beats: Set<string>; reports: Set<string> },
  datagram: Beat | Report,
): void {
  const { amphoraId, bootId, seq, sentMs, generation, configHash, needsApply, vrrpMaster } = datagram
  const before = amphorae.get(amphoraId)
  const sameBoot = before?.heard.bootId === bootId
  // Datagrams overtake each other: an older one adds nothing to what a newer one said.
  if (before !== undefined && sameBoot && before.heard.seq > seq && datagram.kind === 'beat') return
  const { haproxyRunning, mismatches } =
    datagram.kind === 'beat' ? datagram : (before?.heard ?? { haproxyRunning: false, mismatches: [] })
  const heard: Heard = {
    amphoraId,
    bootId,
    seq,
    sentMs,
    generation,
    configHash,
    needsApply,
    vrrpMaster,
    haproxyRunning,
    mismatches,
  }
  const amphora: Amphora = before ?? {
    heard,
    picture: undefined,
    counted: nothingCounted(),
    heardAtMs: 0,
    repairs: new Map(),
    repairedMs: 0,
  }
  const overtaken = sameBoot && before !== undefined && before.heard.seq > seq
  if (!overtaken) amphora.heard = heard
  amphora.heardAtMs = performance.now()
  if (datagram.kind === 'report' && !(overtaken && amphora.picture?.epoch !== datagram.epoch)) {
    amphora.picture = addReport(amphora.picture, datagram)
    for (const { index } of datagram.listeners) amphora.counted.listeners.add(index)
    for (const { index } of datagram.pools) amphora.counted.pools.add(index)
    unwritten.reports.add(amphoraId)
  }
  if (datagram.kind === 'report') rememberRepairs(amphora, datagram.repairs)
  amphorae.set(amphoraId, amphora)
  unwritten.beats.add(amphoraId)
}

/** Far more than an agent ever tells at once. */
const MOST_REPAIRS = 64

function rememberRepairs({ repairs, repairedMs }: Amphora, told: readonly Repair[]): void {
  for (const repair of told) {
    const isNews = repair.atMs > repairedMs && repair.atMs <= Date.now() + CLOCK_TOLERANCE_MS
    if (isNews && repairs.size < MOST_REPAIRS) repairs.set(repair.atMs, repair)
  }
}

async function writeRepairs(database: Database, amphorae: readonly Amphora[]): Promise<void> {
  const told = amphorae.map(amphora => ({ amphora, repairs: [...amphora.repairs.values()] }))
  await recordRepairs(
    database,
    told.map(({ amphora, repairs }) => ({ amphoraId: amphora.heard.amphoraId, repairs })),
  )
  for (const { amphora, repairs } of told) {
    for (const { atMs } of repairs) {
      amphora.repairs.delete(atMs)
      amphora.repairedMs = Math.max(amphora.repairedMs, atMs)
    }
  }
}

function pausing(rechecked: Map<string, number>, now: number): string[] {
  for (const [id, at] of rechecked) if (now - at > RECHECK_PAUSE_MS) rechecked.delete(id)
  return [...rechecked.keys()]
}
