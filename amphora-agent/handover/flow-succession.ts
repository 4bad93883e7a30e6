import { setTimeout as pause } from 'node:timers/promises'
import type { DatagramBalancer } from '../datagrams/balancer.js'
import type { FlowTuple } from '../datagrams/conntrack.js'
import type { Log } from '../log/log.js'
import type { Handover } from '../protocol/handover.js'
import { askFlows, type FlowServer } from './flow-exchange.js'
import { movedFlows } from './plan-handover.js'
import { holdsVip, loadRules } from './tunnel.js'

/** The VIP waits at most this long. */
const FIRST_COPY_MS = 3_000
/** Pauses between copies, before and after the VIP has moved. */
const SOON_MS = 250
const LATER_MS = 1_000
/** After so many failures in a row the other amphora is gone: its flows begin anew here. */
const MOST_FAILURES = 2

/**
 * Keeps flows of UDP and SCTP on the amphora where they began while its VIP moves. The one that takes over asks the other
 * which these are, and sends their packets through the tunnel. It also remembers the other's clients.
 */
export class FlowSuccession {
  readonly #balancer: DatagramBalancer
  readonly #log: Log
  readonly #server: FlowServer
  /** A copy of an earlier handover is not loaded. */
  #round = 0

  constructor(balancer: DatagramBalancer, server: FlowServer, log: Log) {
    this.#balancer = balancer
    this.#server = server
    this.#log = log
  }

  /**
   * Answers the other amphora. May be repeated.
   * @param hasFinished whether this amphora's flows have ended
   * @throws Error if the port is not available
   */
  async offer({ own }: Handover, hasFinished: boolean): Promise<void> {
    this.#server.setFinished(hasFinished)
    await this.#server.open('handover', own)
  }

  /** Copies what the other amphora knows, and follows it until the end. @returns after the first copy */
  async take(handover: Handover): Promise<void> {
    this.end()
    if (!this.#balancer.isBalancing) return
    const round = this.#round
    await new Promise<void>(resolve => {
      const timer = setTimeout(resolve, FIRST_COPY_MS)
      void this.#follow(handover, round, () => {
        clearTimeout(timer)
        resolve()
      })
    })
  }

  /** This amphora's flows have ended: those that still have packets go on at the other. */
  finish(): void {
    this.#server.setFinished(true)
  }

  /** Whether the other amphora may still send packets of flows here that have ended. */
  get isEndUnknown(): boolean {
    return this.#balancer.isBalancing && !this.#server.hasToldEnd
  }

  /** Continues what an earlier agent began, once there are flows. */
  resume(handover: Handover): void {
    this.end()
    void this.#follow(handover, this.#round, () => {})
  }

  end(): void {
    this.#round += 1
    this.#server.close('handover')
  }

  async #follow(handover: Handover, round: number, onCopied: () => void): Promise<void> {
    let failures = 0
    while (round === this.#round && failures < MOST_FAILURES) {
      let hasVip = false
      if (!this.#balancer.isBalancing) {
        await pause(SOON_MS)
        continue
      }
      try {
        hasVip = await holdsVip(handover)
        const { flows, clients } = await askFlows(handover.own, handover.peer, hasVip ? 'flows' : 'all')
        const begunHere = new Set((await this.#balancer.underWay()).map(keyOf))
        if (round !== this.#round) return
        await this.#balancer.learn(clients)
        await loadRules(
          movedFlows(
            handover,
            flows.filter(flow => !begunHere.has(keyOf(flow))),
          ),
        )
        failures = 0
        onCopied()
      } catch (error) {
        // Its agent is being restarted. Its kernel still forwards, or it would not refuse.
        if (!(error instanceof Error && 'code' in error && error.code === 'ECONNREFUSED')) failures += 1
        this.#log.info(`handover: flows: ${String(error)}`)
      }
      await pause(hasVip ? LATER_MS : SOON_MS)
    }
    if (round !== this.#round) return
    await loadRules(movedFlows(handover, [])).catch(error => this.#log.error(`handover: flows: ${String(error)}`))
  }
}

const keyOf = ({ protocol, source, sourcePort, destination, destinationPort }: FlowTuple): string =>
  `${protocol} ${source} ${sourcePort} ${destination} ${destinationPort}`
