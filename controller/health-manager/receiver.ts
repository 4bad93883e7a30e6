import { DgramAsPromised } from 'dgram-as-promised'
import type { Beat, Report } from '../../amphora-agent/protocol/heartbeat.js'
import { decodeDatagram, MAX_DATAGRAM } from '../../amphora-agent/protocol/heartbeat-datagram.js'
import { judge, type ReplayWindow } from './replay-window.js'

export type Refusal = 'oversized' | 'not-authentic' | 'replayed' | 'too-old' | 'clock'

export type ReceiverOptions = {
  host: string
  port: number
  /** The key of an amphora, or null for an unknown key id. */
  keyOf: (keyId: number, amphoraId: string) => Buffer | null
  /** What was remembered before this start, by amphora id. */
  windows: Map<string, ReplayWindow>
  onDatagram: (datagram: Beat | Report) => void
  onRefused: (refusal: Refusal, from: string) => void
}

/** Room in the kernel for bursts while the event loop is busy: some 3500 datagrams. */
const RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024

/**
 * Listens for heartbeats. A datagram counts only when it is authentic and fresh; anything else is dropped after the cheapest test that
 * can tell. Packets are taken from the socket's event, since the promise-based reading loses those that arrive between two reads.
 */
export async function startReceiver({ host, port, keyOf, windows, onDatagram, onRefused }: ReceiverOptions) {
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
  // The kernel caps this at net.core.rmem_max without an error.
  socket.setRecvBufferSize(RECEIVE_BUFFER_BYTES)
  return { host: bound.address, port: bound.port, stop: () => socket.close() }
}
