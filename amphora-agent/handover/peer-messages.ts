import { Transform } from 'node:stream'

/**
 * The part of HAProxy's peers protocol needed to forward stick tables: a hello of three lines, a status line, then
 * messages of a class, a type, and for types from 128 on a length and that many bytes. Everything else passes
 * through unchanged.
 */
const VERSION = 'HAProxyS 2.1'
export const ACCEPTED = '200\n'
const LENGTHS_FROM = 128
/** A first byte of at least this value is followed by more. */
const LONG_LENGTHS_FROM = 240
/** Far above the size of a HAProxy buffer, which holds a whole message. */
const MAX_MESSAGE_SIZE = 1024 * 1024

/** Control messages: class 0, without a body. */
const control = (type: number): Buffer => Buffer.from([0, type])
/**
 * The sender has taught all entries. A worker that has just started waits for this from a peer of its own name, and
 * sends it no updates before.
 */
export const RESYNC_FINISHED = control(1)
/** Requests all entries, not only those that change from now on. */
export const RESYNC_REQUEST = control(0)
/** The receiver has stored all entries. */
export const RESYNC_CONFIRM = control(3)
export const HEARTBEAT = control(4)

/** Both names are the amphora's, so a worker takes the sender for its successor or predecessor after a reload. */
export const peerHello = (name: string): string => `${VERSION}\n${name}\n${name} ${process.pid} 1\n`

/**
 * Passes messages through whole, so that others can be written in between.
 * @param onMessage called with the first two bytes of each
 */
export function wholeMessages(onMessage: (head: Buffer) => void = () => {}): Transform {
  let rest: Buffer = Buffer.alloc(0)
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      rest = rest.length === 0 ? piece : Buffer.concat([rest, piece])
      let end = 0
      for (let next = messageEnd(rest, 0); next !== null; next = messageEnd(rest, end)) {
        onMessage(rest.subarray(end, end + 2))
        end = next
      }
      if (rest.length - end > MAX_MESSAGE_SIZE) return done(new Error(`peer message exceeds ${MAX_MESSAGE_SIZE} bytes`))
      const whole = rest.subarray(0, end)
      rest = rest.subarray(end)
      if (whole.length > 0) this.push(whole)
      done()
    },
  })
}

/** @returns the end of the message that begins at `start`; null if it is incomplete */
function messageEnd(bytes: Buffer, start: number): number | null {
  const type = bytes[start + 1]
  if (type === undefined) return null
  if (type < LENGTHS_FROM) return start + 2
  let at = start + 2
  let byte = bytes[at++]
  if (byte === undefined) return null
  let length = byte
  let hasMore = byte >= LONG_LENGTHS_FROM
  for (let scale = 16; hasMore; scale *= 128) {
    byte = bytes[at++]
    if (byte === undefined) return null
    length += byte * scale
    hasMore = byte >= 128
  }
  return at + length <= bytes.length ? at + length : null
}
