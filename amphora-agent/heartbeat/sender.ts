import { isIPv6 } from 'node:net'
import { freemem, loadavg } from 'node:os'
import { DgramAsPromised, type SocketAsPromised } from 'dgram-as-promised'
import type { Log } from '../log/log.js'
import type { Boot } from '../protocol/boot.js'
import type { Report } from '../protocol/heartbeat.js'
import { encodeBeat, encodeReport } from '../protocol/heartbeat-datagram.js'
import type { Mismatch } from '../protocol/repairs.js'

/** What beats and reports say of the amphora as a whole. */
export type Standing = {
  generation: number
  /** First 16 hexadecimal digits of the applied sha256. */
  configHash: string
  needsApply: boolean
  vrrpMaster: boolean
  mismatches: Mismatch[]
}

export type Sender = {
  beat: (standing: Standing, haproxyRunning: boolean) => Promise<void>
  report: (standing: Standing, content: Pick<Report, 'epoch' | 'listeners' | 'pools' | 'repairs'>) => Promise<void>
  close: () => Promise<void>
}

/** Sends datagrams to every health manager. A datagram that cannot be sent is no failure: each kind of trouble is logged once. */
export function createSender(boot: Boot, bootId: string, log: Log): Sender {
  const key = Buffer.from(boot.heartbeatKey, 'hex')
  const sockets = new Map<'udp4' | 'udp6', SocketAsPromised>()
  const logged = new Set<string>()
  let seq = 0
  const nextSeq = () => ++seq

  const trouble = (error: unknown) => {
    const kind = error instanceof Error ? ((error as NodeJS.ErrnoException).code ?? error.message) : String(error)
    if (logged.has(kind)) return
    logged.add(kind)
    log.warn(`heartbeats cannot be sent: ${error instanceof Error ? error.message : kind}`)
  }

  const socketFor = (host: string): SocketAsPromised => {
    const type = isIPv6(host) ? 'udp6' : 'udp4'
    const known = sockets.get(type)
    if (known) return known
    const socket = DgramAsPromised.createSocket({ type })
    socket.socket.on('error', trouble)
    sockets.set(type, socket)
    return socket
  }

  const send = async (datagrams: readonly Buffer[]) => {
    for (const datagram of datagrams) {
      await Promise.all(
        boot.healthManagers.map(async ({ host, port }) => {
          try {
            await socketFor(host).send(datagram, port, host)
          } catch (error) {
            trouble(error)
          }
        }),
      )
    }
  }

  const envelope = (standing: Standing) => ({
    ...standing,
    keyId: boot.heartbeatKeyId,
    amphoraId: boot.amphoraId,
    bootId,
    sentMs: Date.now(),
  })

  return {
    beat: (standing, haproxyRunning) => {
      const beat = {
        ...envelope(standing),
        kind: 'beat' as const,
        seq: nextSeq(),
        haproxyRunning,
        load: Math.round((loadavg()[0] ?? 0) * 100),
        freeMemoryKib: Math.round(freemem() / 1024),
      }
      return send([encodeBeat(beat, key)])
    },
    report: (standing, content) =>
      send(encodeReport({ ...envelope(standing), kind: 'report', ...content }, key, nextSeq)),
    close: async () => {
      await Promise.all([...sockets.values()].map(socket => socket.close()))
    },
  }
}
