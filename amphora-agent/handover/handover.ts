import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { z } from 'zod'
import type { Haproxy } from '../haproxy/haproxy.js'
import { monotonicMs } from '../haproxy/leaving.js'
import type { WorkerLoad } from '../haproxy/runtime/client.js'
import type { Log } from '../log/log.js'
import { canonical } from '../network/address.js'
import { batch, NetworkFailure, setKernel } from '../network/configure.js'
import { observeNetwork } from '../network/observed.js'
import type { IpCommand } from '../network/plan-interfaces.js'
import { run } from '../process/run.js'
import { type AmphoraDrain, type Handover, handoverSchema, type TablesTaken } from '../protocol/handover.js'
import { STATE_DIRECTORY } from '../protocol/paths.js'
import { planHandover, planHandoverEnd, TUNNEL } from './plan-handover.js'
import type { StickTables } from './stick-tables.js'

const STATE_FILE = `${STATE_DIRECTORY}/handover.json`
const LOOK_MS = 100
/** How often it is counted what an amphora that drains still has under way. */
const COUNT_MS = 1_000

/** Times are milliseconds of the machine's monotonic clock, which goes on when the agent starts anew. */
const stateSchema = z.strictObject({
  handover: z.strictObject({ ...handoverSchema.shape, endsAtMs: z.number() }).nullable(),
  drain: z
    .strictObject({
      endsAtMs: z.number(),
      ended: z.boolean(),
      /** What was closed or lost so far. */
      cut: z.int(),
      /** What each worker was last known to have under way; an older agent has stored none. */
      underWay: z.array(z.strictObject({ pid: z.int(), count: z.int() })).default([]),
    })
    .nullable(),
})

type State = z.output<typeof stateSchema>
type Drain = NonNullable<State['drain']>

export type Handovers = {
  /**
   * Sets up this amphora's part, unless it is to take over what it has already. One that stands only lives longer: rebuilding would forget which
   * connections are whose.
   * @throws NetworkFailure
   */
  begin: (handover: Handover) => Promise<void>
  /**
   * HAProxy accepts nothing any more and ends with its last connection, or at the limit. An amphora that drains never serves again.
   * @param seconds how long connections may last; told twice, the shorter time counts
   */
  drain: (seconds: number) => Promise<void>
  /** Waits, for so long as the VIP may wait, until the one that takes over has the stick tables of the other; undefined for one that does not. */
  tables: () => Promise<TablesTaken | undefined>
  /** Null while it is not asked to drain. */
  drained: () => AmphoraDrain | null
  /** Stops looking after it; what is set up stays, for the next agent. */
  close: () => void
}

/** Takes up what an earlier agent left: the state is in a file, so that a kill at any instant costs no connection. */
export function openHandovers({
  haproxy,
  stickTables,
  log,
}: {
  haproxy: Haproxy
  stickTables: StickTables
  log: Log
}): Handovers {
  let state: State = readState()
  let timer: NodeJS.Timeout | null = null
  let tables: Promise<TablesTaken> | null = null
  const write = (next: State) => {
    state = next
    lookOften()
    mkdirSync(STATE_DIRECTORY, { recursive: true })
    writeFileSync(`${STATE_FILE}.new`, JSON.stringify(next), { mode: 0o600 })
    renameSync(`${STATE_FILE}.new`, STATE_FILE)
  }

  const end = async () => {
    if (state.handover === null) return
    stickTables.end()
    // Undone before it is forgotten: what is cut off here is tried again.
    await unbuild(state.handover, log)
    write({ ...state, handover: null })
    log.info('handover: ended')
  }

  const look = async () => {
    // An agent that finds no file would serve again, and never end what is set up.
    if (!existsSync(STATE_FILE)) write(state)
    if (state.drain !== null && !state.drain.ended) await lookAtDrain()
    if (state.handover !== null && monotonicMs() > state.handover.endsAtMs) await end()
  }

  let countedAt = Number.NEGATIVE_INFINITY
  const lookAtDrain = async () => {
    const isOver = monotonicMs() > (state.drain?.endsAtMs ?? 0)
    const ended = haproxy.pid() === null
    if (!ended && !isOver && performance.now() - countedAt < COUNT_MS) return
    countedAt = performance.now()
    const workers = ended ? [] : await haproxy.underWay()
    if (isOver && !ended) await haproxy.stop()
    // It may have been asked to end sooner meanwhile.
    if (state.drain === null) return
    const drain = workers === null ? state.drain : countAgain(state.drain, workers, pid => haproxy.hasFinished(pid))
    if (!ended && !isOver) {
      if (JSON.stringify(drain) !== JSON.stringify(state.drain)) write({ ...state, drain })
      return
    }
    const cut = drain.cut + sum(drain.underWay)
    write({ ...state, drain: { ...drain, ended: true, cut, underWay: [] } })
    log.info(`drained; ${cut} requests or connections were cut`)
  }

  let looking: Promise<void> | null = null
  /** From the first handover or drain on: most amphorae never have one. */
  const lookOften = () => {
    timer ??= setInterval(() => {
      if (looking !== null || (state.handover === null && state.drain === null)) return
      looking = look()
        .catch(error => log.error(`handover: ${String(error)}`))
        .finally(() => {
          looking = null
        })
    }, LOOK_MS)
  }
  if (state.handover !== null || state.drain !== null) lookOften()

  /** May be repeated. Without the rules HAProxy drains all the same: what then begins a connection here is refused. */
  const startDraining = async () => {
    if (state.handover !== null) {
      await loadRules(planHandover(state.handover, true).rules).catch(error => log.error(`handover: ${String(error)}`))
    }
    haproxy.drain()
  }
  if (state.drain !== null && !state.drain.ended) void startDraining()

  /** Connections do not wait for the tables: without them clients may change their member. */
  const shareTables = (handover: Handover) => {
    if (handover.role === 'taking-over') tables = stickTables.take(handover)
    else if (state.drain === null) {
      stickTables.offer(handover).catch(error => log.error(`handover: stick tables: ${String(error)}`))
    }
  }
  if (state.handover?.role === 'leaving') shareTables(state.handover)

  return {
    begin: async handover => {
      tables = null
      const endsAtMs = monotonicMs() + handover.seconds * 1000
      const hasVip = handover.role === 'taking-over' && (await holdsVip(handover))
      if (state.handover !== null && isSame(state.handover, handover)) {
        write({ ...state, handover: { ...handover, endsAtMs } })
        if (!hasVip) shareTables(handover)
        return
      }
      if (hasVip) {
        // Its own connections would count as those of the other one.
        log.info('handover: nothing to take over, the VIP is here')
        return
      }
      await end()
      await unbuild(handover, log)
      write({ ...state, handover: { ...handover, endsAtMs } })
      try {
        await build(handover, false, log)
      } catch (error) {
        await end()
        throw error
      }
      shareTables(handover)
      log.info(`handover: ${handover.role}, with ${handover.peer}`)
    },
    drain: async seconds => {
      const endsAtMs = monotonicMs() + seconds * 1000
      if (state.drain !== null) {
        write({ ...state, drain: { ...state.drain, endsAtMs: Math.min(endsAtMs, state.drain.endsAtMs) } })
        if (!state.drain.ended) await startDraining()
        return
      }
      write({ ...state, drain: { endsAtMs, ended: false, cut: 0, underWay: [] } })
      await startDraining()
      log.info(`draining for at most ${seconds} s`)
    },
    tables: async () => (await tables) ?? undefined,
    drained: () => state.drain && { ended: state.drain.ended, cut: state.drain.cut },
    close: () => {
      if (timer) clearInterval(timer)
      stickTables.end()
    },
  }
}

const sum = (workers: Drain['underWay']): number => workers.reduce((total, { count }) => total + count, 0)

/** What a worker that is gone had under way is lost, unless it had come to its end; one that does not answer has what it had. */
function countAgain(drain: Drain, workers: readonly WorkerLoad[], hasFinished: (pid: number) => boolean): Drain {
  const before = new Map(drain.underWay.map(({ pid, count }) => [pid, count]))
  const present = new Set(workers.map(({ pid }) => pid))
  const lost = drain.underWay.filter(({ pid }) => !present.has(pid) && !hasFinished(pid))
  const underWay = workers.map(({ pid, underWay }) => ({ pid, count: underWay ?? before.get(pid) ?? 0 }))
  return { ...drain, cut: drain.cut + sum(lost), underWay }
}

async function holdsVip({ interface: device, vips }: Handover): Promise<boolean> {
  const { addresses } = await observeNetwork()
  const own = addresses.filter(address => address.device === device).map(({ address }) => canonical(address))
  return vips.some(vip => own.includes(canonical(vip.address)))
}

const isSame = (one: Handover, other: Handover) =>
  one.role === other.role &&
  one.own === other.own &&
  one.peer === other.peer &&
  one.interface === other.interface &&
  JSON.stringify(one.vips) === JSON.stringify(other.vips)

function readState(): State {
  try {
    return stateSchema.parse(JSON.parse(readFileSync(STATE_FILE, 'utf8')))
  } catch {
    // None yet; or of another version, which knew another way to hand over.
    rmSync(STATE_FILE, { force: true })
    return { handover: null, drain: null }
  }
}

async function build(handover: Handover, drains: boolean, log: Log): Promise<void> {
  const { commands, rules } = planHandover(handover, drains)
  await loadRules(rules)
  await batch(commands.slice(0, 1), log)
  // Replies leave by the interface of the VIP, and an interface without an address passes no check of the way back. Newer kernels take the stricter of the two.
  for (const device of ['all', TUNNEL]) setKernel(`ipv4/conf/${device}/rp_filter`, '0', log)
  for (const device of [TUNNEL, handover.interface]) setKernel(`ipv4/conf/${device}/forwarding`, '1', log)
  // IPv6 has no switch of one interface that suffices; the rules let nothing through but what belongs to the handover.
  setKernel('ipv6/conf/all/forwarding', '1', log)
  await batch(commands.slice(1), log)
}

async function unbuild(handover: Handover, log: Log): Promise<void> {
  const { commands, rules } = planHandoverEnd(handover)
  await batch(commands.map(unessential), quiet(log))
  setKernel('ipv6/conf/all/forwarding', '0', log)
  setKernel(`ipv4/conf/${handover.interface}/forwarding`, '0', log)
  await loadRules(rules)
}

/** Most of what is removed is not there. */
const quiet = (log: Log): Log => ({ ...log, warn: () => {} })
const unessential = (command: IpCommand): IpCommand => ({ ...command, essential: false })

async function loadRules(rules: string): Promise<void> {
  const { status, stderr } = await run('nft', ['-f', '-'], { input: rules })
  if (status !== 0) throw new NetworkFailure(`nft: ${stderr.trim().slice(0, 1_000)}`)
}
