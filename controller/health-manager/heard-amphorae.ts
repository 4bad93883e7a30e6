import type { Beat, Report } from '../../amphora-agent/protocol/heartbeat.js'
import type { Repair } from '../../amphora-agent/protocol/repairs.js'
import { addReport, type Picture } from './operating/picture.js'
import type { Heard } from './record-beats.js'
import type { AmphoraPicture } from './record-reports.js'
import { CLOCK_TOLERANCE_MS } from './replay-window.js'

/** Far more than an agent ever reports at once. */
const MAX_REPAIRS = 64

type Counting = { listeners: Set<number>; pools: Set<number> }

/** What one amphora has sent since this process started. */
export type HeardAmphora = {
  heard: Heard
  picture: Picture | undefined
  counted: Counting
  heardAtMs: number
  /** Repairs not yet written, by their time, which identifies them. */
  repairs: Map<number, Repair>
  /** Time of the last repair written. */
  repairedMs: number
}

/** What is new since the last write. */
export type Unwritten = {
  beats: readonly HeardAmphora[]
  reports: readonly HeardAmphora[]
  /** Contents of the reports, with the counters that are new. */
  pictures: readonly AmphoraPicture[]
}

/** In-memory state of all amphorae: one entry each, so memory does not grow while the database is unavailable. */
export class HeardAmphorae {
  readonly #amphorae = new Map<string, HeardAmphora>()
  readonly #unwrittenBeats = new Set<string>()
  readonly #unwrittenReports = new Set<string>()

  remember(datagram: Beat | Report): void {
    const { amphoraId, bootId, seq } = datagram
    const before = this.#amphorae.get(amphoraId)
    const isOvertaken = before !== undefined && before.heard.bootId === bootId && before.heard.seq > seq
    // Datagrams may arrive out of order; an older heartbeat adds nothing to a newer one.
    if (isOvertaken && datagram.kind === 'beat') return
    const heard = heardOf(datagram, before?.heard)
    const amphora = before ?? newAmphora(heard)
    if (!isOvertaken) amphora.heard = heard
    amphora.heardAtMs = performance.now()
    if (datagram.kind === 'report') {
      if (!isOvertaken || amphora.picture?.epoch === datagram.epoch) this.#rememberReport(amphora, datagram)
      rememberRepairs(amphora, datagram.repairs)
    }
    this.#amphorae.set(amphoraId, amphora)
    this.#unwrittenBeats.add(amphoraId)
  }

  /** Takes what is new. The caller must put back what it cannot write. */
  take(): Unwritten {
    const beats = this.#taken(this.#unwrittenBeats)
    const reports = this.#taken(this.#unwrittenReports)
    const pictures = reports.flatMap(({ heard: { amphoraId, vrrpMaster }, picture, counted }) =>
      picture === undefined ? [] : [{ amphoraId, vrrpMaster, picture, counted }],
    )
    for (const amphora of reports) amphora.counted = nothingCounted()
    return { beats, reports, pictures }
  }

  /** The next attempt writes the latest heartbeat of each amphora. */
  putBackBeats(beats: readonly HeardAmphora[]): void {
    for (const { heard } of beats) this.#unwrittenBeats.add(heard.amphoraId)
  }

  putBackPictures(pictures: readonly AmphoraPicture[]): void {
    for (const { amphoraId, counted } of pictures) {
      this.#unwrittenReports.add(amphoraId)
      const again = this.#amphorae.get(amphoraId)?.counted
      for (const index of counted.listeners) again?.listeners.add(index)
      for (const index of counted.pools) again?.pools.add(index)
    }
  }

  silentMs(amphoraId: string): number {
    return performance.now() - (this.#amphorae.get(amphoraId)?.heardAtMs ?? 0)
  }

  /** Ids of amphorae heard within this time. */
  heardWithin(milliseconds: number): string[] {
    const now = performance.now()
    return [...this.#amphorae].filter(([, { heardAtMs }]) => now - heardAtMs < milliseconds).map(([id]) => id)
  }

  /** Forgets amphorae that have been silent for this time. @returns their ids */
  forgetSilent(milliseconds: number): string[] {
    const silent = [...this.#amphorae.keys()].filter(id => this.silentMs(id) >= milliseconds)
    for (const id of silent) this.#amphorae.delete(id)
    return silent
  }

  #rememberReport(amphora: HeardAmphora, report: Report): void {
    amphora.picture = addReport(amphora.picture, report)
    for (const { index } of report.listeners) amphora.counted.listeners.add(index)
    for (const { index } of report.pools) amphora.counted.pools.add(index)
    this.#unwrittenReports.add(report.amphoraId)
  }

  #taken(ids: Set<string>): HeardAmphora[] {
    const taken = [...ids].flatMap(id => this.#amphorae.get(id) ?? [])
    ids.clear()
    return taken
  }
}

const nothingCounted = (): Counting => ({ listeners: new Set(), pools: new Set() })

const newAmphora = (heard: Heard): HeardAmphora => ({
  heard,
  picture: undefined,
  counted: nothingCounted(),
  heardAtMs: 0,
  repairs: new Map(),
  repairedMs: 0,
})

/** Reports lack some fields; those keep their values from the last heartbeat. */
function heardOf(datagram: Beat | Report, before: Heard | undefined): Heard {
  const { amphoraId, bootId, seq, sentMs, generation, configHash, needsApply, vrrpMaster } = datagram
  const { haproxyRunning, mismatches } =
    datagram.kind === 'beat' ? datagram : (before ?? { haproxyRunning: false, mismatches: [] })
  const common = { amphoraId, bootId, seq, sentMs, generation, configHash, needsApply, vrrpMaster }
  return { ...common, haproxyRunning, mismatches }
}

function rememberRepairs({ repairs, repairedMs }: HeardAmphora, reported: readonly Repair[]): void {
  for (const repair of reported) {
    const isNew = repair.atMs > repairedMs && repair.atMs <= Date.now() + CLOCK_TOLERANCE_MS
    if (isNew && repairs.size < MAX_REPAIRS) repairs.set(repair.atMs, repair)
  }
}
