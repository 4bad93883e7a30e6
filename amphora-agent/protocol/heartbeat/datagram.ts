import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Beat, Envelope, Report } from '../heartbeat.js'
import { readBeat, readReport, splitReport, writeBeat, writeReportHead } from './payload.js'

/** Size limit of datagrams, so that none needs IP fragmentation. */
export const MAX_DATAGRAM = 1200

/*
 * Layout, all numbers big-endian:
 *   0 magic 'LBHB' | 4 version | 5 kind | 6 key id | 7 flags | 8 amphora id (16) | 24 boot id (8) | 32 seq u64 | 40 sent ms u64
 *  48 generation u64 | 56 fragment index u8 | 57 fragment count u8 | 58 payload length u16 | 60 payload
 *  last 32: HMAC-SHA256 over everything before
 */
const MAGIC = Buffer.from('LBHB')
const VERSION = 1
const KINDS = { beat: 1, report: 2 } as const
const FLAG_LAST_FRAGMENT = 2
const FLAG_NEEDS_APPLY = 4
const FLAG_VRRP_MASTER = 8
const KNOWN_FLAGS = FLAG_LAST_FRAGMENT | FLAG_NEEDS_APPLY | FLAG_VRRP_MASTER
const HEADER = 60
const SEAL = 32
const MAX_PAYLOAD = MAX_DATAGRAM - HEADER - SEAL
const MAX_FRAGMENTS = 255

/** @throws RangeError for a number out of the format's range */
export function encodeBeat(beat: Beat, key: Buffer): Buffer {
  return seal(beat, 'beat', { index: 0, count: 1 }, writeBeat(beat), key)
}

/**
 * Encodes a report as datagrams of at most MAX_DATAGRAM bytes, each self-contained with its own seq and HMAC. A
 * report of more than 255 datagrams becomes several reports.
 * @throws RangeError for a number out of the format's range
 */
export function encodeReport(report: Omit<Report, 'fragment' | 'seq'>, key: Buffer, nextSeq: () => number): Buffer[] {
  const head = writeReportHead(report)
  const payloads = splitReport(report, MAX_PAYLOAD - head.length)
  return payloads.map((payload, i) => {
    const index = i % MAX_FRAGMENTS
    const count = Math.min(MAX_FRAGMENTS, payloads.length - (i - index))
    return seal({ ...report, seq: nextSeq() }, 'report', { index, count }, Buffer.concat([head, payload]), key)
  })
}

/**
 * Decodes one datagram from the network. Never throws, whatever the bytes. Reads the payload only after verifying
 * the HMAC.
 * @param keyOf returns the key of that amphora, or null if there is none
 * @returns null for anything but an authentic, complete and well-formed message
 */
export function decodeDatagram(
  bytes: Buffer,
  keyOf: (keyId: number, amphoraId: string) => Buffer | null,
): Beat | Report | null {
  if (bytes.length < HEADER + SEAL || bytes.length > MAX_DATAGRAM) return null
  if (!bytes.subarray(0, 4).equals(MAGIC) || bytes.readUInt8(4) !== VERSION) return null
  if (bytes.readUInt16BE(58) !== bytes.length - HEADER - SEAL) return null
  const keyId = bytes.readUInt8(6)
  const amphoraId = formatUuid(bytes.subarray(8, 24))
  const key = keyOf(keyId, amphoraId)
  if (key === null) return null
  const sealed = bytes.subarray(0, -SEAL)
  if (!timingSafeEqual(hmac(key, sealed), bytes.subarray(-SEAL))) return null

  const flags = bytes.readUInt8(7)
  const [seq, sentMs, generation] = [32, 40, 48].map(offset => Number(bytes.readBigUInt64BE(offset))) as [
    number,
    number,
    number,
  ]
  if (![seq, sentMs, generation].every(Number.isSafeInteger) || (flags & ~KNOWN_FLAGS) !== 0) return null
  const envelope: Envelope = {
    keyId,
    amphoraId,
    bootId: bytes.toString('hex', 24, 32),
    seq,
    sentMs,
    generation,
    needsApply: (flags & FLAG_NEEDS_APPLY) !== 0,
    vrrpMaster: (flags & FLAG_VRRP_MASTER) !== 0,
  }
  const fragment = { index: bytes.readUInt8(56), count: bytes.readUInt8(57) }
  if (fragment.index >= fragment.count) return null
  const payload = sealed.subarray(HEADER)
  switch (bytes.readUInt8(5)) {
    case KINDS.beat: {
      const body = readBeat(payload)
      return body && { kind: 'beat', ...envelope, ...body }
    }
    case KINDS.report: {
      const body = readReport(payload)
      return body && { kind: 'report', ...envelope, ...body, fragment }
    }
    default:
      return null
  }
}

function seal(
  envelope: Envelope,
  kind: keyof typeof KINDS,
  fragment: Report['fragment'],
  payload: Buffer,
  key: Buffer,
): Buffer {
  const header = Buffer.alloc(HEADER)
  MAGIC.copy(header)
  header.writeUInt8(VERSION, 4)
  header.writeUInt8(KINDS[kind], 5)
  header.writeUInt8(envelope.keyId, 6)
  const last = fragment.index === fragment.count - 1
  header.writeUInt8(
    (last ? FLAG_LAST_FRAGMENT : 0) |
      (envelope.needsApply ? FLAG_NEEDS_APPLY : 0) |
      (envelope.vrrpMaster ? FLAG_VRRP_MASTER : 0),
    7,
  )
  header.write(envelope.amphoraId.replaceAll('-', ''), 8, 16, 'hex')
  header.write(envelope.bootId, 24, 8, 'hex')
  header.writeBigUInt64BE(BigInt(envelope.seq), 32)
  header.writeBigUInt64BE(BigInt(envelope.sentMs), 40)
  header.writeBigUInt64BE(BigInt(envelope.generation), 48)
  header.writeUInt8(fragment.index, 56)
  header.writeUInt8(fragment.count, 57)
  header.writeUInt16BE(payload.length, 58)
  const sealed = Buffer.concat([header, payload])
  return Buffer.concat([sealed, hmac(key, sealed)])
}

const hmac = (key: Buffer, bytes: Buffer): Buffer => createHmac('sha256', key).update(bytes).digest()

function formatUuid(bytes: Buffer): string {
  const hex = bytes.toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}
