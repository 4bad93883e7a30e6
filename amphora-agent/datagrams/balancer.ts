import type { Log } from '../log/log.js'
import { settleForwarding, stopForwarding } from '../network/forwarding.js'
import { Turns } from '../process/turns.js'
import type { Datagrams } from '../protocol/datagrams.js'
import type { Desired } from '../protocol/desired.js'
import { deleteFlows, type Flow, type FlowUnderWay, flowsByMark, flowsUnderWay, listFlows } from './conntrack.js'
import { FlowMeter, type FlowReading, NO_READING } from './flow-meter.js'
import { allowedFlows, flowsToDelete } from './flows.js'
import { type KnownClient, learningText, readClients } from './known-clients.js'
import type { MemberMonitors } from './member-states.js'
import { commit, contents, observeRuleset } from './nftables.js'
import { NumberStore } from './number-store.js'
import { allot, type Numbers, SERVICE_MASK, serviceKey, serviceMark, serviceOf } from './numbers.js'
import { flowsOf, planRuleset } from './plan-ruleset.js'
import { EMPTY, REMOVAL, type Ruleset, signed, TABLE, transaction } from './ruleset.js'
import { type DatagramStates, datagramStates, NO_DATAGRAMS } from './states.js'

/** The table is checked this often, whatever has happened: somebody may have changed it unnoticed. */
const CHECK_MS = 300_000

/** How often the schedules of LEAST_CONNECTIONS follow the loads, at most. New flows are expected for the time in between. */
const FOLLOW_MS = 1_000
/** It rests at least so many times as long as it took: plans of thousands of members take long. */
const REST_FACTOR = 20

export type BalancerOptions = {
  monitors: MemberMonitors
  /** Called when somebody else has changed the table. */
  onDrift: () => void
  log: Log
}

type Wanted = Datagrams & Pick<Desired, 'interfaces'>

/**
 * Balances UDP and SCTP: the kernel forwards the packets by the rules of one nftables table. Every change of the table is
 * one transaction with what differs, and the kernel remembers the member of each flow, so a change disturbs no other flow.
 */
export class DatagramBalancer {
  readonly #options: BalancerOptions
  readonly #store = new NumberStore()
  /** Changes of the table, one at a time: applies, and changes of members' states. */
  readonly #turns = new Turns()
  #wanted: Wanted | null = null
  /** What the table holds; null if it is unknown. */
  #known: Ruleset | null = null
  /** Whether the last transaction succeeded. */
  #isInForce = false
  /** When to check what the table holds. */
  #checkAt = Number.NEGATIVE_INFINITY
  readonly #meter = new FlowMeter()
  /** Follows the loads of members while there is a pool whose schedule depends on them. */
  #timer: NodeJS.Timeout | null = null
  /** What was planned last. */
  #planned: Ruleset<readonly string[]> | null = null
  /** What the table looked like when it was checked last; null since it was changed. */
  #checked: string | null = null

  constructor(options: BalancerOptions) {
    this.#options = options
  }

  /**
   * Makes the kernel balance as desired. Monitors begin, go on and end with it.
   * @param desired null: nothing is balanced
   * @returns whether it had to change something
   * @throws NetworkFailure if the kernel refuses; the former rules stay in force
   */
  apply(desired: Desired | null): Promise<boolean> {
    return this.#turns.run(async () => {
      const { monitors, log } = this.#options
      const wanted = desired?.datagrams ? { ...desired.datagrams, interfaces: desired.interfaces } : null
      monitors.watch(wanted?.pools ?? [], desired?.downMembers ?? [])
      this.#wanted = wanted
      this.#follow()
      if (wanted === null) {
        this.#meter.clear()
        const isRemoved = await this.#remove()
        if (isRemoved) stopForwarding(desired?.interfaces ?? [], log)
        return isRemoved
      }
      const isChanged = await this.#write(wanted)
      settleForwarding({ interfaces: wanted.interfaces, datagrams: wanted }, log)
      return isChanged
    })
  }

  /** Members went down or came back. */
  readonly membersChanged = (): void => {
    void this.#turns
      .run(async () => {
        if (this.#wanted !== null) await this.#write(this.#wanted)
      })
      .catch(error => this.#options.log.error(`cannot follow members: ${String(error)}`))
  }

  /** Somebody else has changed the table, or may have. */
  readonly tableChanged = (): void => {
    this.#checkAt = Number.NEGATIVE_INFINITY
    this.#options.onDrift()
  }

  /**
   * Restores the table and the settings if somebody else has changed them.
   * @returns whether somebody has
   * @throws NetworkFailure
   */
  repair(): Promise<boolean> {
    return this.#turns.run(async () => {
      const wanted = this.#wanted
      if (wanted === null) return false
      const isForeign = performance.now() >= this.#checkAt && (await this.#restore())
      await this.#write(wanted)
      const isUnset = settleForwarding({ interfaces: wanted.interfaces, datagrams: wanted }, this.#options.log)
      return isForeign || isUnset
    })
  }

  /**
   * What the kernel counted, at most a second ago or somewhat longer; longer too if it cannot be read.
   * @returns null while it is unknown
   */
  async read(): Promise<FlowReading | null> {
    const wanted = this.#wanted
    if (this.#known === null) return this.#meter.last
    if (wanted === null) return NO_READING
    const reading = await this.#meter.read(wanted.listeners, this.#store.numbers).catch((error: unknown) => {
      this.#options.log.error(`cannot read the counters of UDP and SCTP: ${String(error)}`)
      return this.#meter.last
    })
    const allowed = allowedFlows(wanted, this.#store.numbers, this.#options.monitors)
    // A packet that was on its way during a change may have begun a flow by the former rules.
    if (wanted === this.#wanted && reading !== null && flowsToDelete(reading.marks.keys(), allowed).length > 0) {
      this.#sweepSoon()
    }
    return reading
  }

  get isBalancing(): boolean {
    return this.#wanted !== null
  }

  /** @throws Error if the kernel cannot be read */
  async underWay(): Promise<FlowUnderWay[]> {
    return this.#wanted === null ? [] : flowsUnderWay()
  }

  /** How many flows had a packet within so many seconds. @throws Error if the kernel cannot be read */
  async activeFlows(seconds: number): Promise<number> {
    const numbers = this.#store.numbers.services.given
    const idle = new Map(this.#wanted?.listeners.map(one => [numbers[serviceKey(one)], one.idleSeconds]))
    const flows = await this.underWay()
    return flows.filter(({ mark, secondsLeft }) => secondsLeft > (idle.get(serviceOf(mark)) ?? 0) - seconds).length
  }

  /** The clients that pools with session persistence remember. @throws Error if the kernel cannot be read */
  async clients(): Promise<KnownClient[]> {
    return this.#wanted === null ? [] : readClients(this.#wanted.pools, this.#store.numbers)
  }

  /** Remembers clients of another amphora, for an amphora that has none of its own yet. @throws NetworkFailure */
  learn(clients: readonly KnownClient[]): Promise<void> {
    return this.#turns.run(async () => {
      if (this.#wanted === null || this.#known === null || clients.length === 0) return
      const { pools } = this.#wanted
      const text = learningText(clients, await readClients(pools, this.#store.numbers), pools, this.#store.numbers)
      if (text !== '') await commit(signed(text))
    })
  }

  /** What to report of listeners, pools and members. */
  states(): DatagramStates {
    if (this.#wanted === null) return NO_DATAGRAMS
    const { services } = this.#meter.last ?? NO_READING
    const flows = new Map(services.map(({ listener, counters }) => [listener.id, counters.activeConnections]))
    return datagramStates(this.#wanted, this.#options.monitors, this.#isInForce, flows)
  }

  async close(): Promise<void> {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = null
    await this.#options.monitors.close()
    await this.#turns.idle()
  }

  /** Writes what was planned again. @returns whether the table was different */
  async #restore(): Promise<boolean> {
    this.#checkAt = performance.now() + CHECK_MS
    const planned = this.#planned
    const found = await contents()
    if (planned === null || found === this.#checked) return false
    const before = await observeRuleset()
    this.#keepNumbers(this.#store.numbers, before)
    await this.#commit(signed(transaction(before, planned)), planned)
    this.#checked = await contents()
    return found !== this.#checked
  }

  /**
   * Brings the schedules of LEAST_CONNECTIONS nearer to the loads, at most once a second.
   * @param workMs how long it took the last time
   */
  #follow(workMs = 0): void {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = null
    if (!this.#wanted?.pools.some(({ algorithm }) => algorithm === 'LEAST_CONNECTIONS')) return
    this.#timer = setTimeout(
      () => {
        const started = performance.now()
        void this.read()
          .then(() => this.#turns.run(async () => this.#wanted !== null && this.#write(this.#wanted)))
          .catch(error => this.#options.log.error(`cannot follow the load of members: ${String(error)}`))
          .finally(() => this.#timer !== null && this.#follow(performance.now() - started))
      },
      Math.max(FOLLOW_MS, this.#meter.restMs, REST_FACTOR * workMs),
    )
  }

  #sweepSoon(): void {
    void this.#turns
      .run(async () => {
        if (this.#wanted !== null) await this.#sweep(this.#wanted)
      })
      .catch(error => this.#options.log.error(`cannot end flows: ${String(error)}`))
  }

  async #write(wanted: Wanted): Promise<boolean> {
    const { monitors: states } = this.#options
    const before = this.#known ?? (await observeRuleset())
    const numbers = this.#keepNumbers(allot(this.#store.numbers, wanted), before)
    const { interfaces } = wanted
    const { members, rates } = this.#meter.last ?? NO_READING
    const loads = { flows: members, expected: rates }
    const formerly = this.#planned ?? before
    const after = planRuleset({ datagrams: wanted, interfaces, numbers, states, loads, before: formerly })
    this.#planned = after
    const text = transaction(before, after)
    if (text === '') return false
    const isObserved = this.#known === null
    try {
      await this.#commit(signed(text), after)
    } catch (error) {
      if (isObserved) throw error
      // Somebody else may have changed the table: this time it is looked at.
      return this.#write(wanted)
    }
    const isAdopted = before.chains.size === 0 || [...before.chains.values()].some(({ rules }) => rules === 'unknown')
    if (isAdopted || losesFlows(before, after)) await this.#sweep(wanted)
    await this.#countUnderWay(wanted, before, after)
    return true
  }

  /** @param before what the table holds until now: if there is none, the counters begin at zero */
  #keepNumbers(numbers: Numbers, { chains }: Ruleset): Numbers {
    const kept = { ...numbers, tables: numbers.tables + (chains.size === 0 ? 1 : 0) }
    this.#store.keep(kept)
    return kept
  }

  async #remove(): Promise<boolean> {
    if (this.#known === EMPTY) return false
    const before = this.#known ?? (await observeRuleset())
    if (before.chains.size > 0) {
      await this.#commit(REMOVAL, EMPTY)
      await this.#sweep({ vips: [], listeners: [], pools: [] })
    }
    this.#known = EMPTY
    this.#planned = null
    return before.chains.size > 0
  }

  async #commit(text: string, after: Ruleset): Promise<void> {
    this.#known = null
    try {
      await commit(text)
    } catch (error) {
      this.#isInForce = false
      throw error
    }
    this.#known = after
    this.#isInForce = true
    this.#checked = null
  }

  /** Ends the flows that may not go on where they went, so that their clients move at once. */
  async #sweep(wanted: Datagrams): Promise<void> {
    const allowed = allowedFlows(wanted, this.#store.numbers, this.#options.monitors)
    const flows = await flowsByMark()
    for (const marks of flowsToDelete(flows.keys(), allowed)) await this.#forgetFlows(await deleteFlows(marks))
  }

  /** Flows under way count for a new limit of their listener. */
  async #countUnderWay({ listeners }: Wanted, before: Ruleset, after: Ruleset): Promise<void> {
    for (const listener of listeners) {
      const number = this.#store.numbers.services.given[serviceKey(listener)]!
      const name = flowsOf(number)
      const isNew = before.sets.get(name)?.declaration !== after.sets.get(name)?.declaration
      if (listener.limit === null || !isNew || !before.chains.has(`listener_${number}`)) continue
      const flows = await listFlows({ mark: serviceMark(number), mask: Number(SERVICE_MASK) })
      const elements = flows.slice(0, listener.limit).map(({ id }) => `${id} timeout ${listener.idleSeconds}s`)
      if (elements.length > 0) await this.#adjust(`add element ${TABLE} ${name} { ${elements.join(', ')} }\n`)
    }
  }

  /** Flows that ended no longer count for the limit of their listener. */
  async #forgetFlows(ended: readonly Flow[]): Promise<void> {
    const limited = new Map<string, number[]>()
    for (const { mark, id } of ended) {
      const name = flowsOf(serviceOf(mark))
      if (this.#known?.sets.has(name)) limited.set(name, [...(limited.get(name) ?? []), id])
    }
    for (const [name, ids] of limited) {
      // Added first: it may have expired already.
      const elements = `element ${TABLE} ${name} { ${ids.join(', ')} }`
      await this.#adjust(`add ${elements}\ndelete ${elements}\n`)
    }
  }

  /** Changes what the kernel has learned. If that fails, it learns as flows go on and end. */
  async #adjust(text: string): Promise<void> {
    await commit(signed(text)).catch(error => {
      this.#options.log.info(`the count of flows is not right for a while: ${String(error)}`)
    })
  }
}

/** Whether members or services are gone that flows may have. */
function losesFlows(before: Ruleset, after: Ruleset): boolean {
  return ['targets4', 'targets6', 'received'].some(name => {
    const [former, present] = [before.sets.get(name)?.elements, after.sets.get(name)?.elements]
    if (former === undefined || typeof former === 'string') return true
    return [...former.keys()].some(key => typeof present === 'string' || !present?.has(key))
  })
}
