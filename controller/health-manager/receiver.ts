import { DgramAsPromised } from 'dgram-as-promised'
import { decodeDatagram, MAX_DATAGRAM } from '../../amphora-agent/protocol/heartbeat/datagram.js'
import type { Beat, Report } from '../../amphora-agent/protocol/heartbeat.js'
import { judge, type ReplayWindow } from './replay-window.js'

export type Refusal = 'oversized' | 'not-authentic' | 'replayed' | 'too-old' | 'clock'

export type ReceiverOptions = {
  /** Addresses to listen on, each with the same port. */
  hosts: readonly [string, ...string[]]
  port: number
  /** The key of an amphora, or null for an unknown key id. */
  keyOf: (keyId: number, amphoraId: string) => Buffer | null
  /** Replay windows by amphora id, updated in place. */
  windows: Map<string, ReplayWindow>
  onDatagram: (datagram: Beat | Report) => void
  onRefused: (refusal: Refusal, from: string) => void
}

/** Buffers bursts of some 3500 datagrams while the event loop is busy. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024

/**
 * Listens for heartbeats. Accepts only authentic and fresh datagrams, and drops others after the cheapest
 * sufficient test. Uses the socket's event, because the promise-based API loses packets that arrive between two
 * reads.
 */
export async function startReceiver(options: ReceiverOptions) {
  const [first, ...others] = options.hosts
  const receiver = await listen(options, first, options.port)
  const receivers = [receiver]
  try {
    for (const host of others) receivers.push(await listen(options, host, receiver.port))
  } catch (error) {
    await Promise.all(receivers.map(one => one.stop()))
    throw error
  }
  const stop = async () => {
    await Promise.all(receivers.map(one => one.stop()))
  }
  return { host: receiver.host, port: receiver.port, stop }
}

async function listen({ keyOf, windows, onDatagram, onRefused }: ReceiverOptions, host: string, port: number) {
  const socket = DgramAsPromised.createSocket({ type: host.includes(':') ? 'udp6' : 'udp4' })
  socket.socket.on('message', (bytes, { address }) => {
    if (bytes.length > MAX_DATAGRAM) return onRefused('oversized', address)
    const datagram = decodeDatagram(bytes, keyOf)
    if (datagram === null) return onRefused('not-authentic', address)
    const verdict = judge(windows.get(datagram.amphoraId), datagram, Date.now())
    if (!verdict.accepted) return onRefused(verdict.reason, address)
    windows.set(datagram.amphoraId, verdict.window)
    onDatagram(datagram)
  })
  const bound = await socket.bind({ address: host, port })
  // The kernel silently caps this at net.core.rmem_max.
  socket.setRecvBufferSize(RECEIVE_BUFFER_BYTES)
  return { host: bound.address, port: bound.port, stop: () => socket.close() }
}
