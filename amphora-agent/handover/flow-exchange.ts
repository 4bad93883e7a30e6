import { once } from 'node:events'
import { createConnection, createServer, type Server, type Socket } from 'node:net'
import * as z from 'zod'
import type { DatagramBalancer } from '../datagrams/balancer.js'
import { type KnownClient, knownClientSchema } from '../datagrams/known-clients.js'
import type { Log } from '../log/log.js'
import { FLOWS_PORT } from '../protocol/paths.js'
import { MOST_FLOWS } from './plan-handover.js'

const ANSWER_MS = 1_500
const MAX_ANSWER_BYTES = 32 * 1024 * 1024
/** Clients are read again after so many times the time that it took. */
const REST_FACTOR = 20

const address = z.union([z.ipv4(), z.ipv6()])
const answerSchema = z.strictObject({
  flows: z
    .array(
      z.strictObject({
        protocol: z.enum(['udp', 'sctp']),
        source: address,
        // Senders of UDP that expect no answer may use port 0 (RFC 768).
        sourcePort: z.int().min(0).max(65535),
        destination: address,
        destinationPort: z.int().min(1).max(65535),
      }),
    )
    .max(MOST_FLOWS),
  clients: z.array(knownClientSchema),
})

type Answer = z.output<typeof answerSchema>

/** What one amphora asks another one: its flows of UDP and SCTP, the clients that its pools remember, or both. */
export type Question = 'flows' | 'clients' | 'all'

/**
 * Asks another amphora. Its answer is checked: it is no better guarded than this one.
 * @throws Error if there is no answer within a short time
 */
export async function askFlows(localAddress: string, host: string, question: Question): Promise<Answer> {
  const socket = createConnection({ host, localAddress, port: FLOWS_PORT })
  const pieces: Buffer[] = []
  let size = 0
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

/** Why it is open: amphorae of a pair share clients, and a leaving amphora tells its flows. */
type Purpose = 'pair' | 'handover'

/** Answers the questions of other amphorae, which the packet filter admits by their addresses. */
export class FlowServer {
  readonly #balancer: DatagramBalancer
  readonly #log: Log
  readonly #purposes = new Set<Purpose>()
  readonly #open = new Set<Socket>()
  #listening: { server: Server; address: string } | null = null
  #hasFinished = false
  #hasToldEnd = false
  #clients: { read: KnownClient[]; until: number } = { read: [], until: Number.NEGATIVE_INFINITY }

  constructor(balancer: DatagramBalancer, log: Log) {
    this.#balancer = balancer
    this.#log = log
  }

  /** May be repeated. @throws Error if the port is not available */
  async open(purpose: Purpose, own: string): Promise<void> {
    this.#purposes.add(purpose)
    if (this.#listening?.address === own) return
    this.#listening?.server.close()
    const server = createServer(socket => this.#answer(socket))
    server.on('error', error => {
      this.#log.error(`flows: ${error.message}`)
      if (this.#listening?.server === server) this.#listening = null
    })
    this.#listening = { server, address: own }
    server.listen(FLOWS_PORT, own)
    await once(server, 'listening')
  }

  close(purpose: Purpose): void {
    this.#purposes.delete(purpose)
    if (this.#purposes.size > 0) return
    this.#listening?.server.close()
    this.#listening = null
    for (const socket of this.#open) socket.destroy()
  }

  /** @param hasFinished whether this amphora's flows have ended: those that still have packets go on elsewhere */
  setFinished(hasFinished: boolean): void {
    this.#hasFinished = hasFinished
    if (!hasFinished) this.#hasToldEnd = false
  }

  /** Whether another amphora has heard that this one's flows have ended. */
  get hasToldEnd(): boolean {
    return this.#hasToldEnd
  }

  #answer(socket: Socket): void {
    this.#open.add(socket)
    socket.on('close', () => this.#open.delete(socket))
    socket.on('error', () => {})
    socket.setTimeout(ANSWER_MS, () => socket.destroy())
    socket.once('data', question => {
      this.#known(question.toString('latin1').trim()).then(
        ({ isEnd, answer }) => {
          socket.end(JSON.stringify(answer), () => {
            if (isEnd) this.#hasToldEnd = true
          })
        },
        error => {
          this.#log.error(`flows: ${String(error)}`)
          socket.destroy()
        },
      )
    })
  }

  async #known(question: string): Promise<{ isEnd: boolean; answer: Answer }> {
    const hasFinished = this.#hasFinished
    const underWay = hasFinished || question === 'clients' ? [] : await this.#balancer.underWay()
    const newest = underWay.sort((one, other) => other.secondsLeft - one.secondsLeft).slice(0, MOST_FLOWS)
    const answer = {
      flows: newest.map(({ mark: _, secondsLeft: __, ...tuple }) => tuple),
      clients: question === 'flows' ? [] : await this.#readClients(question === 'all'),
    }
    return { isEnd: hasFinished && question !== 'clients', answer }
  }

  /** @param isUrgent whether the last reading is too old: the VIP is about to move */
  async #readClients(isUrgent: boolean): Promise<KnownClient[]> {
    const started = performance.now()
    if (!isUrgent && started < this.#clients.until) return this.#clients.read
    const read = await this.#balancer.clients()
    const now = performance.now()
    this.#clients = { read, until: now + REST_FACTOR * (now - started) }
    return read
  }
}
