import { Transform } from 'node:stream'

/**
 * What must be known of the protocol in which HAProxy's peers share stick tables: a hello of three lines, a line with a status, then messages of
 * a class, a type, and for types from 128 on a length and that many bytes. Everything else passes through as it is.
 */
const VERSION = 'HAProxyS 2.1'
export const WELCOME = '200\n'
const LENGTHS_FROM = 128
/** A first byte from here on has others after it. */
const LONG_LENGTHS_FROM = 240
/** Far above a buffer of HAProxy, which holds a whole message. */
const LONGEST_MESSAGE = 1024 * 1024

/** Messages of class 0, which have no body. */
const control = (type: number): Buffer => Buffer.from([0, type])
/** There is no more to learn. One that has just started waits for that from a peer of its own name, and tells it nothing new until then. */
export const TAUGHT_ALL = control(1)
/** Asks for all entries, not only for those that change from now on. */
export const TEACH_ALL = control(0)
/** All of them were stored. */
export const CONFIRMED = control(3)
export const STILL_THERE = control(4)

/** By which a worker knows its own successor, and takes it for its elder: both have the name of the amphora. */
export const helloOf = (name: string): string => `${VERSION}\n${name}\n${name} ${process.pid} 1\n`

/**
 * Lets messages through whole, so that others may be written in between.
 * @param onMessage told of the first two bytes of each
 */
export function wholeMessages(onMessage: (head: Buffer) => void = () => {}): Transform {
  let rest: Buffer = Buffer.alloc(0)
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      rest = rest.length === 0 ? piece : Buffer.concat([rest, piece])
      let end = 0
      for (let next = endOf(rest, 0); next !== null; next = endOf(rest, end)) {
        onMessage(rest.subarray(end, end + 2))
        end = next
      }
      if (rest.length - end > LONGEST_MESSAGE) return done(new Error('a message of a peer is too long'))
      const whole = rest.subarray(0, end)
      rest = rest.subarray(end)
      if (whole.length > 0) this.push(whole)
      done()
    },
  })
}

/** @returns where the message that begins at `start` ends, null when not all of it is there */
function endOf(bytes: Buffer, start: number): number | null {
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
