import { CHECK_STATUSES, checkWords, type FailedCheck, MAX_CHECK_CODE, MAX_CHECK_WORDS } from '../checks.js'
import type { Beat, Counters, ListenerState, MemberState, PoolState, Report } from '../heartbeat.js'
import { MAX_REPAIR_LENGTH, MISMATCHES, REPAIR_KINDS, type Repair } from '../repairs.js'

const LISTENER_STATES: readonly ListenerState[] = ['OPEN', 'FULL', 'DOWN']
const POOL_STATES: readonly PoolState[] = ['UP', 'DOWN']
const MEMBER_STATES: readonly MemberState[] = ['UNKNOWN', 'UP', 'DOWN', 'DRAIN', 'MAINT', 'NO_CHECK']
const LISTENER = 1
const POOL = 2
/** Code of the first kind of repair; the others follow. */
const REPAIR = 3
/** Leaves room for kinds of repairs. */
const CHECK = 16

type BeatBody = Pick<Beat, 'configHash' | 'haproxyRunning' | 'load' | 'freeMemoryKib' | 'mismatches'>
type ReportBody = Pick<Report, 'configHash' | 'epoch' | 'listeners' | 'pools' | 'checks' | 'repairs'>

/** Size of a beat from an older agent, without mismatches. */
const OLD_BEAT = 21
const BEAT = 23

/** Layout: config hash (8 bytes), flags, load (u32), free memory in KiB (u64), one bit per mismatch (u16). */
export function writeBeat(beat: BeatBody): Buffer {
  const bytes = Buffer.alloc(BEAT)
  bytes.write(beat.configHash, 0, 8, 'hex')
  bytes.writeUInt8(beat.haproxyRunning ? 1 : 0, 8)
  bytes.writeUInt32BE(beat.load, 9)
  bytes.writeBigUInt64BE(BigInt(beat.freeMemoryKib), 13)
  bytes.writeUInt16BE(
    beat.mismatches.reduce((bits, mismatch) => bits | (1 << MISMATCHES.indexOf(mismatch)), 0),
    21,
  )
  return bytes
}

export function readBeat(bytes: Buffer): BeatBody | null {
  if ((bytes.length !== OLD_BEAT && bytes.length !== BEAT) || bytes.readUInt8(8) > 1) return null
  const freeMemoryKib = Number(bytes.readBigUInt64BE(13))
  const bits = bytes.length === BEAT ? bytes.readUInt16BE(21) : 0
  if (!Number.isSafeInteger(freeMemoryKib) || bits >= 1 << MISMATCHES.length) return null
  return {
    configHash: bytes.toString('hex', 0, 8),
    haproxyRunning: bytes.readUInt8(8) === 1,
    load: bytes.readUInt32BE(9),
    freeMemoryKib,
    mismatches: MISMATCHES.filter((_, bit) => (bits & (1 << bit)) !== 0),
  }
}

/** The start of every fragment of a report: config hash and epoch, 8 bytes each. */
export function writeReportHead({ configHash, epoch }: Pick<Report, 'configHash' | 'epoch'>): Buffer {
  const bytes = Buffer.alloc(16)
  bytes.write(configHash, 0, 8, 'hex')
  bytes.write(epoch, 8, 8, 'hex')
  return bytes
}

/**
 * Splits the objects of a report into payloads of at most `room` bytes; returns at least one payload. An object is
 * never split, except for the member states of a large pool: they span several payloads, each with the pool's state
 * and counters. Checks come last, in payloads of their own: a health manager that does not know them refuses only
 * these.
 */
export function splitReport(
  { listeners, pools, checks, repairs }: Pick<Report, 'listeners' | 'pools' | 'checks' | 'repairs'>,
  room: number,
): Buffer[] {
  const payloads: Buffer[] = []
  let open: Buffer[] = []
  let used = 0
  const close = () => {
    payloads.push(Buffer.concat(open))
    open = []
    used = 0
  }
  const add = (item: Buffer) => {
    if (used + item.length > room) close()
    open.push(item)
    used += item.length
  }

  for (const { index, state, counters } of listeners) {
    add(Buffer.concat([u8(LISTENER), u16(index), u8(codeOf(LISTENER_STATES, state)), ...counterBytes(counters)]))
  }
  for (const { index, state, counters, firstMember, members } of pools) {
    const head = Buffer.concat([u8(POOL), u16(index), u8(codeOf(POOL_STATES, state)), ...counterBytes(counters)])
    let next = 0
    do {
      if (used + head.length + 4 + 1 > room) close()
      const fitting = 2 * (room - used - head.length - 4)
      const states = members.slice(next, next + fitting)
      add(Buffer.concat([head, u16(firstMember + next), u16(states.length), memberBytes(states)]))
      next += states.length
    } while (next < members.length)
  }
  for (const { kind, atMs, text } of repairs) {
    const words = Buffer.from(text, 'ascii')
    add(Buffer.concat([u8(REPAIR + REPAIR_KINDS.indexOf(kind)), varint(atMs), u8(words.length), words]))
  }
  if (used > 0 || payloads.length === 0) close()
  for (const { pool, check, members } of checks) {
    const head = checkHead(pool, check)
    let next = 0
    while (next < members.length) {
      if (used + head.length + 2 + 2 > room) close()
      const places = members.slice(next, next + Math.floor((room - used - head.length - 2) / 2))
      add(Buffer.concat([head, u16(places.length), ...places.map(u16)]))
      next += places.length
    }
  }
  if (used > 0) close()
  return payloads
}

/**
 * Reads the output of writeReportHead followed by one payload of splitReport.
 * @returns null if any byte is malformed
 */
export function readReport(bytes: Buffer): ReportBody | null {
  if (bytes.length < 16) return null
  const body: ReportBody = {
    configHash: bytes.toString('hex', 0, 8),
    epoch: bytes.toString('hex', 8, 16),
    listeners: [],
    pools: [],
    checks: [],
    repairs: [],
  }
  const cursor = { bytes, at: 16 }
  while (cursor.at < bytes.length) {
    const kind = readNumber(cursor, 1)
    const repairKind = kind === null ? undefined : REPAIR_KINDS[kind - REPAIR]
    if (repairKind !== undefined) {
      const repair = readRepair(cursor, repairKind)
      if (repair === null) return null
      body.repairs.push(repair)
      continue
    }
    if (kind === CHECK) {
      const failed = readCheck(cursor)
      if (failed === null) return null
      body.checks.push(failed)
      continue
    }
    const index = readNumber(cursor, 2)
    const code = readNumber(cursor, 1)
    const counters = readCounters(cursor)
    if (index === null || code === null || counters === null) return null
    if (kind === LISTENER) {
      const state = LISTENER_STATES[code]
      if (state === undefined) return null
      body.listeners.push({ index, state, counters })
    } else if (kind === POOL) {
      const state = POOL_STATES[code]
      const firstMember = readNumber(cursor, 2)
      const members = readMembers(cursor)
      if (state === undefined || firstMember === null || members === null) return null
      body.pools.push({ index, state, counters, firstMember, members })
    } else return null
  }
  return body
}

type Cursor = { bytes: Buffer; at: number }

function readNumber(cursor: Cursor, size: 1 | 2): number | null {
  if (cursor.at + size > cursor.bytes.length) return null
  const value = cursor.bytes.readUIntBE(cursor.at, size)
  cursor.at += size
  return value
}

/**
 * 7 bits per byte, lowest first, the high bit set on all but the last byte; at most 53 bits, so that numbers stay
 * exact.
 */
function readVarint(cursor: Cursor): number | null {
  let value = 0
  for (let i = 0; i < 8; i++) {
    const byte = readNumber(cursor, 1)
    if (byte === null) return null
    value += (byte & 0x7f) * 2 ** (7 * i)
    if (byte < 0x80) return Number.isSafeInteger(value) ? value : null
  }
  return null
}

function readCounters(cursor: Cursor): Counters | null {
  const bytesIn = readVarint(cursor)
  const bytesOut = readVarint(cursor)
  const activeConnections = readVarint(cursor)
  const totalConnections = readVarint(cursor)
  const requestErrors = readVarint(cursor)
  if (bytesIn === null || bytesOut === null || activeConnections === null) return null
  if (totalConnections === null || requestErrors === null) return null
  return { bytesIn, bytesOut, activeConnections, totalConnections, requestErrors }
}

function readRepair(cursor: Cursor, kind: Repair['kind']): Repair | null {
  const atMs = readVarint(cursor)
  const length = readNumber(cursor, 1)
  if (atMs === null || length === null || length > MAX_REPAIR_LENGTH) return null
  const text = cursor.bytes.toString('latin1', cursor.at, cursor.at + length)
  cursor.at += length
  return text.length === length && /^[ -~]*$/.test(text) ? { kind, atMs, text } : null
}

function readCheck(cursor: Cursor): Report['checks'][number] | null {
  const pool = readNumber(cursor, 2)
  const status = CHECK_STATUSES[readNumber(cursor, 1) ?? CHECK_STATUSES.length]
  const code = readNumber(cursor, 2)
  const length = readNumber(cursor, 1)
  if (pool === null || status === undefined || code === null || code > MAX_CHECK_CODE) return null
  if (length === null || length > MAX_CHECK_WORDS) return null
  const words = cursor.bytes.toString('latin1', cursor.at, cursor.at + length)
  cursor.at += length
  if (words.length !== length || words !== checkWords(words)) return null
  const count = readNumber(cursor, 2)
  if (count === null || cursor.at + 2 * count > cursor.bytes.length) return null
  const members = Array.from({ length: count }, (_, i) => cursor.bytes.readUInt16BE(cursor.at + 2 * i))
  cursor.at += 2 * count
  return { pool, check: { status, code, words }, members }
}

function readMembers(cursor: Cursor): MemberState[] | null {
  const count = readNumber(cursor, 2)
  if (count === null || cursor.at + Math.ceil(count / 2) > cursor.bytes.length) return null
  const members: MemberState[] = []
  for (let i = 0; i < count; i++) {
    const byte = cursor.bytes.readUInt8(cursor.at + (i >> 1))
    const state = MEMBER_STATES[i % 2 === 0 ? byte >> 4 : byte & 15]
    if (state === undefined) return null
    members.push(state)
  }
  cursor.at += Math.ceil(count / 2)
  return members
}

function checkHead(pool: number, { status, code, words }: FailedCheck): Buffer {
  const bytes = Buffer.from(words, 'ascii')
  return Buffer.concat([u8(CHECK), u16(pool), u8(codeOf(CHECK_STATUSES, status)), u16(code), u8(bytes.length), bytes])
}

function counterBytes(counters: Counters): Buffer[] {
  const { bytesIn, bytesOut, activeConnections, totalConnections, requestErrors } = counters
  return [bytesIn, bytesOut, activeConnections, totalConnections, requestErrors].map(varint)
}

function varint(value: number): Buffer {
  if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`not a counter: ${value}`)
  const bytes: number[] = []
  let rest = value
  do {
    const low = rest % 128
    rest = Math.floor(rest / 128)
    bytes.push(rest > 0 ? low | 0x80 : low)
  } while (rest > 0)
  return Buffer.from(bytes)
}

function memberBytes(states: readonly MemberState[]): Buffer {
  const bytes = Buffer.alloc(Math.ceil(states.length / 2))
  states.forEach((state, i) => {
    bytes[i >> 1]! |= codeOf(MEMBER_STATES, state) << (i % 2 === 0 ? 4 : 0)
  })
  return bytes
}

function codeOf<T>(states: readonly T[], state: T): number {
  return states.indexOf(state)
}

function u8(value: number): Buffer {
  return Buffer.from([value])
}

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2)
  bytes.writeUInt16BE(value)
  return bytes
}
