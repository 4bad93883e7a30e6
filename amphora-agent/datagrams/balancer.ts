import type { Log } from '../log/log.js'
import { canonical } from '../network/address.js'
import { settleForwarding, stopForwarding } from '../network/forwarding.js'
import { Turns } from '../process/turns.js'
import type { Datagrams } from '../protocol/datagrams.js'
import type { Desired } from '../protocol/desired.js'
import { deleteFlows, deleteUnbalanced, type Flow, flowsByMark } from './conntrack.js'
import { allowedFlows, flowsToDelete } from './flows.js'
import type { MemberMonitors } from './member-states.js'
import { commit, observeRuleset } from './nftables.js'
import { NumberStore } from './number-store.js'
import { allot, serviceKey, serviceOf } from './numbers.js'
import { flowsOf, type Loads, planRuleset } from './plan-ruleset.js'
import { EMPTY, REMOVAL, type Ruleset, TABLE, transaction } from './ruleset.js'

/** The table is written anew this often, whatever has happened: somebody may have changed it unnoticed. */
const REWRITE_MS = 300_000

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
  #writtenAt = Number.NEGATIVE_INFINITY
  readonly #loads: Loads = { flows: new Map(), expected: new Map() }
  /** Transactions of this agent, and those that the kernel told of. */
  #issued = 0
  #seen = 0
  #isForeign = false

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
      if (wanted === null) {
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

  /** The kernel tells of a change of the table. */
  readonly tableChanged = (): void => {
    this.#seen += 1
    if (this.#seen <= this.#issued) return
    this.#seen = this.#issued
    this.#isForeign = true
    this.#options.onDrift()
  }

  /**
   * Writes the table again if somebody else may have changed it.
   * @returns whether somebody has
   * @throws NetworkFailure
   */
  repair(): Promise<boolean> {
    return this.#turns.run(async () => {
      const wanted = this.#wanted
      if (wanted === null) return false
      const isForeign = this.#isForeign
      if (isForeign || performance.now() - this.#writtenAt > REWRITE_MS) this.#known = null
      if (this.#known === null) await this.#write(wanted)
      this.#isForeign = false
      const isUnset = settleForwarding({ interfaces: wanted.interfaces, datagrams: wanted }, this.#options.log)
      return isForeign || isUnset
    })
  }

  async close(): Promise<void> {
    await this.#options.monitors.close()
    await this.#turns.idle()
  }

  async #write(wanted: Wanted): Promise<boolean> {
    const { monitors: states } = this.#options
    this.#store.keep(allot(this.#store.numbers, wanted))
    const { numbers } = this.#store
    const before = this.#known ?? (await observeRuleset())
    const { interfaces } = wanted
    const after = planRuleset({ datagrams: wanted, interfaces, numbers, states, loads: this.#loads, before })
    const text = transaction(before, after)
    if (text === '') return false
    await this.#commit(text, after)
    const isAdopted = before.chains.size === 0 || [...before.chains.values()].some(({ rules }) => rules === 'unknown')
    if (isAdopted || losesFlows(before, after)) await this.#sweep(wanted)
    await this.#forgetUnbalanced(wanted, before)
    return true
  }

  async #remove(): Promise<boolean> {
    if (this.#known === EMPTY) return false
    const before = this.#known ?? (await observeRuleset())
    if (before.chains.size > 0) {
      await this.#commit(REMOVAL, EMPTY)
      await this.#sweep({ vips: [], listeners: [], pools: [] })
    }
    this.#known = EMPTY
    return before.chains.size > 0
  }

  async #commit(text: string, after: Ruleset): Promise<void> {
    this.#known = null
    this.#issued += 1
    try {
      await commit(text)
    } catch (error) {
      this.#issued -= 1
      throw error
    }
    this.#known = after
    this.#writtenAt = performance.now()
  }

  /** Ends the flows that may not go on where they went, so that their clients move at once. */
  async #sweep(wanted: Datagrams): Promise<void> {
    const allowed = allowedFlows(wanted, this.#store.numbers, this.#options.monitors)
    const flows = await flowsByMark()
    for (const marks of flowsToDelete(flows.keys(), allowed)) await this.#forgetFlows(await deleteFlows(marks))
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
      const text = `add ${elements}\ndelete ${elements}\n`
      this.#issued += 1
      await commit(text).catch(error => {
        this.#issued -= 1
        this.#options.log.info(`flows that ended count for a while: ${String(error)}`)
      })
    }
  }

  /** Flows to a place without a listener were not balanced; with the listener, their next packets are. */
  async #forgetUnbalanced({ vips, listeners }: Wanted, before: Ruleset): Promise<void> {
    const numbers = this.#store.numbers.services.given
    const fresh = listeners.filter(listener => !before.chains.has(`listener_${numbers[serviceKey(listener)]}`))
    for (const { protocol, port } of fresh) {
      for (const vip of vips) await deleteUnbalanced(protocol, canonical(vip), port)
    }
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
