import { isIPv6 } from 'node:net'
import { freemem, loadavg } from 'node:os'
import { DgramAsPromised, type SocketAsPromised } from 'dgram-as-promised'
import type { Log } from '../log/log.js'
import type { Boot } from '../protocol/boot.js'
import { encodeBeat, encodeReport } from '../protocol/heartbeat/datagram.js'
import type { Report } from '../protocol/heartbeat.js'
import type { Mismatch } from '../protocol/repairs.js'

/** The state of the amphora as a whole, in beats and reports. */
export type AmphoraStatus = {
  generation: number
  /** First 16 hexadecimal digits of the applied sha256. */
  configHash: string
  needsApply: boolean
  vrrpMaster: boolean
  mismatches: Mismatch[]
}

type ReportContent = Pick<Report, 'epoch' | 'listeners' | 'pools' | 'checks' | 'repairs'>

/** Sends datagrams to every health manager. A failed send is not fatal: each kind of error is logged once. */
export class Sender {
  readonly #boot: Boot
  readonly #bootId: string
  readonly #log: Log
  readonly #key: Buffer
  readonly #sockets = new Map<'udp4' | 'udp6', SocketAsPromised>()
  readonly #logged = new Set<string>()
  #seq = 0

  constructor(boot: Boot, bootId: string, log: Log) {
    this.#boot = boot
    this.#bootId = bootId
    this.#log = log
    this.#key = Buffer.from(boot.heartbeatKey, 'hex')
  }

  beat(status: AmphoraStatus, haproxyRunning: boolean): Promise<void> {
    const beat = {
      ...this.#envelope(status),
      kind: 'beat' as const,
      seq: this.#nextSeq(),
      haproxyRunning,
      load: Math.round((loadavg()[0] ?? 0) * 100),
      freeMemoryKib: Math.round(freemem() / 1024),
    }
    return this.#send([encodeBeat(beat, this.#key)])
  }

  report(status: AmphoraStatus, content: ReportContent): Promise<void> {
    const report = { ...this.#envelope(status), kind: 'report' as const, ...content }
    return this.#send(encodeReport(report, this.#key, this.#nextSeq))
  }

  async close(): Promise<void> {
    await Promise.all([...this.#sockets.values()].map(socket => socket.close()))
  }

  readonly #nextSeq = (): number => ++this.#seq

  #envelope(status: AmphoraStatus) {
    const { heartbeatKeyId: keyId, amphoraId } = this.#boot
    return { ...status, keyId, amphoraId, bootId: this.#bootId, sentMs: Date.now() }
  }

  async #send(datagrams: readonly Buffer[]): Promise<void> {
    for (const datagram of datagrams) {
      await Promise.all(this.#boot.healthManagers.map(({ host, port }) => this.#sendTo(datagram, host, port)))
    }
  }

  async #sendTo(datagram: Buffer, host: string, port: number): Promise<void> {
    try {
      await this.#socketFor(host).send(datagram, port, host)
    } catch (error) {
      this.#logOnce(error)
    }
  }

  #socketFor(host: string): SocketAsPromised {
    const type = isIPv6(host) ? 'udp6' : 'udp4'
    const known = this.#sockets.get(type)
    if (known) return known
    const socket = DgramAsPromised.createSocket({ type })
    socket.socket.on('error', error => this.#logOnce(error))
    this.#sockets.set(type, socket)
    return socket
  }

  #logOnce(error: unknown): void {
    const kind = error instanceof Error ? ((error as NodeJS.ErrnoException).code ?? error.message) : String(error)
    if (this.#logged.has(kind)) return
    this.#logged.add(kind)
    this.#log.warn(`cannot send heartbeats: ${error instanceof Error ? error.message : kind}`)
  }
}
