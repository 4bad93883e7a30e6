/** Echo requests of ICMP (RFC 792) and ICMPv6 (RFC 4443). The kernel sets their checksums and identifiers. */

const HEADER_BYTES = 8
const TYPES = { 4: { request: 8, reply: 0 }, 6: { request: 128, reply: 129 } } as const

/** @param token what the reply must repeat */
export function echoRequest(family: 4 | 6, sequence: number, token: Buffer): Buffer {
  const header = Buffer.alloc(HEADER_BYTES)
  header.writeUInt8(TYPES[family].request, 0)
  header.writeUInt16BE(sequence, 6)
  return Buffer.concat([header, token])
}

export const isEchoReply = (family: 4 | 6, packet: Buffer, token: Buffer): boolean =>
  packet[0] === TYPES[family].reply && packet.subarray(HEADER_BYTES).equals(token)
