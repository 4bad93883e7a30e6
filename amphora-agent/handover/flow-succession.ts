import { once } from 'node:events'
import { createConnection, createServer, type Server, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import * as z from 'zod'
import type { DatagramBalancer } from '../datagrams/balancer.js'
import type { FlowTuple } from '../datagrams/conntrack.js'
import { knownClientSchema } from '../datagrams/known-clients.js'
import type { Log } from '../log/log.js'
import type { Handover } from '../protocol/handover.js'
import { FLOWS_PORT, MOST_FLOWS, movedFlows } from './plan-handover.js'
import { holdsVip, loadRules } from './tunnel.js'

/** The VIP waits at most this long. */
const FIRST_COPY_MS = 3_000
const ANSWER_MS = 1_500
/** Pauses between copies, before and after the VIP has moved. */
const SOON_MS = 250
const LATER_MS = 1_000
/** After so many failures in a row the other amphora is gone: its flows begin anew here. */
const MOST_FAILURES = 2
const MAX_ANSWER_BYTES = 32 * 1024 * 1024

const address = z.union([z.ipv4(), z.ipv6()])
const port = z.int().min(1).max(65535)
const answerSchema = z.strictObject({
  flows: z
    .array(
      z.strictObject({
        protocol: z.enum(['udp', 'sctp']),
        source: address,
        sourcePort: port,
        destination: address,
        destinationPort: port,
      }),
    )
    .max(MOST_FLOWS),
  /** Only for the question `all`. */
  clients: z.array(knownClientSchema),
})

type Answer = z.output<typeof answerSchema>

/**
 * Keeps flows of UDP and SCTP on the amphora where they began while its VIP moves. The one that takes over asks the other
 * which these are, and sends their packets through the tunnel. It also remembers the other's clients.
 */
export class FlowSuccession {
  readonly #balancer: DatagramBalancer
  readonly #log: Log
  #server: Server | null = null
  readonly #open = new Set<Socket>()
  /** Whether no flow of this amphora may go on. */
  #isOver = false
  /** A copy of an earlier handover is not loaded. */
  #round = 0

  constructor(balancer: DatagramBalancer, log: Log) {
    this.#balancer = balancer
    this.#log = log
  }

  /**
   * Answers the other amphora. May be repeated.
   *
   * @param isOver whether its flows have ended
   * @throws Error if the port is not available
   */
  async offer({ own }: Handover, isOver: boolean): Promise<void> {
    this.#isOver = isOver
    if (this.#server !== null) return
    const opened = createServer(socket => this.#answer(socket))
    opened.listen(FLOWS_PORT, own)
    await once(opened, 'listening')
    opened.on('error', error => this.#log.error(`handover: flows: ${error.message}`))
    this.#server = opened
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
    this.#isOver = true
  }

  /** Continues what an earlier agent began, once there are flows. */
  resume(handover: Handover): void {
    this.end()
    void this.#follow(handover, this.#round, () => {})
  }

  end(): void {
    this.#round += 1
    this.#server?.close()
    this.#server = null
    for (const socket of this.#open) socket.destroy()
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
        const { flows, clients } = await this.#ask(handover, hasVip ? 'flows' : 'all')
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
        failures += 1
        this.#log.info(`handover: flows: ${String(error)}`)
      }
      await pause(hasVip ? LATER_MS : SOON_MS)
    }
    if (round !== this.#round) return
    await loadRules(movedFlows(handover, [])).catch(error => this.#log.error(`handover: flows: ${String(error)}`))
  }

  async #ask({ own: localAddress, peer: host }: Handover, question: 'all' | 'flows'): Promise<Answer> {
    const socket = createConnection({ host, localAddress, port: FLOWS_PORT })
    const pieces: Buffer[] = []
    let size = 0
    this.#track(socket)
    const timer = setTimeout(() => socket.destroy(new Error('no answer')), ANSWER_MS)
    try {
      socket.write(`${question}\n`)
      for await (const piece of socket as AsyncIterable<Buffer>) {
        pieces.push(piece)
        size += piece.length
        if (size > MAX_ANSWER_BYTES) throw new Error('the answer is too long')
      }
      return answerSchema.parse(JSON.parse(Buffer.concat(pieces).toString('utf8')))
    } finally {
      clearTimeout(timer)
      socket.destroy()
    }
  }

  #answer(socket: Socket): void {
    this.#track(socket)
    socket.setTimeout(ANSWER_MS, () => socket.destroy())
    socket.once('data', question => {
      this.#known(question.toString('latin1') === 'all\n').then(
        known => socket.end(JSON.stringify(known)),
        error => {
          this.#log.error(`handover: flows: ${String(error)}`)
          socket.destroy()
        },
      )
    })
  }

  async #known(withClients: boolean): Promise<Answer> {
    const underWay = this.#isOver ? [] : await this.#balancer.underWay()
    const newest = underWay.sort((one, other) => other.secondsLeft - one.secondsLeft).slice(0, MOST_FLOWS)
    return {
      flows: newest.map(({ mark: _, secondsLeft: __, ...tuple }) => tuple),
      clients: withClients ? await this.#balancer.clients() : [],
    }
  }

  #track(socket: Socket): void {
    this.#open.add(socket)
    socket.on('close', () => this.#open.delete(socket))
    socket.on('error', () => {})
  }
}

const keyOf = ({ protocol, source, sourcePort, destination, destinationPort }: FlowTuple): string =>
  `${protocol} ${source} ${sourcePort} ${destination} ${destinationPort}`
