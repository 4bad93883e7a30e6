import type { DatagramBalancer } from '../datagrams/balancer.js'
import type { Log } from '../log/log.js'
import { holdsVip } from '../network/observed.js'
import type { Desired } from '../protocol/desired.js'
import { onEveryTick } from '../time/ticks.js'
import { askFlows, type FlowServer } from './flow-exchange.js'

/** Every second tick of the agent. */
const TICKS = 2

export type SharedClientsOptions = {
  balancer: DatagramBalancer
  server: FlowServer
  desired: () => Desired | null
  log: Log
}

/**
 * In a pair, the amphora without the VIP asks the other one every few seconds which clients session persistence has bound
 * to members, so that it knows nearly all of them when it takes over unexpectedly.
 */
export class SharedClients {
  readonly #options: SharedClientsOptions
  #stop = () => {}
  #ticks = 0
  #isAsking = false
  /** The last error logged, so that it is not logged repeatedly. */
  #lastError = ''

  constructor(options: SharedClientsOptions) {
    this.#options = options
  }

  start(): void {
    this.#stop = onEveryTick(() => {
      this.#ticks += 1
      if (this.#ticks % TICKS === 0 && !this.#isAsking) void this.#share()
    })
  }

  close(): void {
    this.#stop()
    this.#options.server.close('pair')
  }

  async #share(): Promise<void> {
    const { server, desired, log } = this.#options
    const state = desired()
    const isPersistent = state?.datagrams?.pools.some(({ persistence }) => persistence !== null) ?? false
    if (state === null || state.pair === null || !isPersistent) return server.close('pair')
    this.#isAsking = true
    try {
      await server.open('pair', state.pair.address)
      if (!holdsVip(state)) await this.#ask(state.pair)
      this.#lastError = ''
    } catch (error) {
      if (String(error) !== this.#lastError) log.info(`clients of the other amphora: ${String(error)}`)
      this.#lastError = String(error)
    } finally {
      this.#isAsking = false
    }
  }

  async #ask({ address, peers }: NonNullable<Desired['pair']>): Promise<void> {
    for (const peer of peers) {
      const { clients } = await askFlows(address, peer, 'clients')
      await this.#options.balancer.learn(clients)
    }
  }
}
