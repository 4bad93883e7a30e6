/** Packets of SCTP (RFC 9260) that begin and abandon an association. */

const HEADER_BYTES = 12
const INIT = 1
const INIT_ACK = 2
const ABORT = 6
/** Of INIT and INIT ACK, without parameters. */
const INIT_BYTES = 20
const ABORT_BYTES = 4
const RECEIVER_WINDOW = 65_536

/** The ports of this side and of the other. */
export type Ports = { own: number; other: number }

/** @param tag 32 bits, not 0, that every packet of the answer has to carry */
export function initPacket({ own, other }: Ports, tag: number): Buffer {
  const packet = Buffer.alloc(HEADER_BYTES + INIT_BYTES)
  packet.writeUInt16BE(own, 0)
  packet.writeUInt16BE(other, 2)
  // The verification tag of an INIT is 0.
  packet.writeUInt8(INIT, 12)
  packet.writeUInt16BE(INIT_BYTES, 14)
  packet.writeUInt32BE(tag, 16)
  packet.writeUInt32BE(RECEIVER_WINDOW, 20)
  packet.writeUInt16BE(1, 24)
  packet.writeUInt16BE(1, 26)
  packet.writeUInt32BE(tag, 28)
  return withChecksum(packet)
}

/** @param peerTag from the INIT ACK */
export function abortPacket({ own, other }: Ports, peerTag: number): Buffer {
  const packet = Buffer.alloc(HEADER_BYTES + ABORT_BYTES)
  packet.writeUInt16BE(own, 0)
  packet.writeUInt16BE(other, 2)
  packet.writeUInt32BE(peerTag, 4)
  packet.writeUInt8(ABORT, 12)
  packet.writeUInt16BE(ABORT_BYTES, 14)
  return withChecksum(packet)
}

/**
 * Reads the answer to an INIT. The checksum is not verified: between interfaces that leave it to each other, as veth
 * pairs do, packets arrive without one. The tag says who has sent it.
 * @returns the tag of the other side, `refused` for an ABORT, or null if it is no answer to this INIT
 */
export function readInitAnswer(
  packet: Buffer,
  { own, other }: Ports,
  tag: number,
): { peerTag: number } | 'refused' | null {
  if (packet.length < HEADER_BYTES + ABORT_BYTES) return null
  if (packet.readUInt16BE(0) !== other || packet.readUInt16BE(2) !== own || packet.readUInt32BE(4) !== tag) return null
  const type = packet.readUInt8(12)
  const length = packet.readUInt16BE(14)
  if (HEADER_BYTES + length > packet.length) return null
  if (type === ABORT) return length >= ABORT_BYTES ? 'refused' : null
  if (type !== INIT_ACK || length < INIT_BYTES) return null
  const peerTag = packet.readUInt32BE(16)
  const streams = [packet.readUInt16BE(24), packet.readUInt16BE(26)]
  return peerTag === 0 || streams.includes(0) ? null : { peerTag }
}

function withChecksum(packet: Buffer): Buffer {
  packet.writeUInt32LE(crc32c(packet), 8)
  return packet
}

const CASTAGNOLI = 0x82f63b78
const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ CASTAGNOLI : value >>> 1
  return value
})

/** CRC32c, as in appendix A of RFC 9260. */
export function crc32c(bytes: Uint8Array): number {
  let value = 0xffffffff
  for (const byte of bytes) value = (value >>> 8) ^ (TABLE[(value ^ byte) & 0xff] ?? 0)
  return (value ^ 0xffffffff) >>> 0
}
