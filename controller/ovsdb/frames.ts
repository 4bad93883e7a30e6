import { OvsdbProtocolError } from './errors.js'

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN = 0x7b
const CLOSE = 0x7d
const BLANKS: readonly number[] = [0x20, 0x09, 0x0a, 0x0d]

/** Bytes of one message. The whole of a database with 100,000 rows has some ten million. */
export const MAX_MESSAGE = 256 * 1024 * 1024

/**
 * Splits a stream into JSON objects, which follow each other without any separator (RFC 7047, 4). Looks at each byte
 * once, however many pieces a message comes in.
 * @returns a function that takes the next piece and returns the texts of the objects that are complete with it
 * @throws OvsdbProtocolError from that function, if what comes is no object or longer than `maxMessage` bytes
 */
export function createFrameReader(maxMessage = MAX_MESSAGE): (piece: Buffer) => string[] {
  let pieces: Buffer[] = []
  let length = 0
  let depth = 0
  let isString = false
  let isEscaped = false

  /** Follows one byte. @returns whether it ends an object */
  const ends = (byte: number): boolean => {
    if (isEscaped) isEscaped = false
    else if (isString) {
      if (byte === QUOTE) isString = false
      else if (byte === BACKSLASH) isEscaped = true
    } else if (byte === QUOTE) isString = true
    else if (byte === OPEN) depth += 1
    else if (byte === CLOSE) return --depth === 0
    return false
  }

  return piece => {
    const texts: string[] = []
    let start = depth > 0 ? 0 : -1
    for (let at = 0; at < piece.length; at++) {
      const byte = piece[at] ?? 0
      if (depth === 0) {
        if (BLANKS.includes(byte)) continue
        if (byte !== OPEN) throw new OvsdbProtocolError('The OVSDB server sends what is not a JSON object.')
        start = at
      }
      if (!ends(byte)) continue
      pieces.push(piece.subarray(start, at + 1))
      texts.push(Buffer.concat(pieces).toString('utf8'))
      ;[pieces, length, start] = [[], 0, -1]
    }
    if (start >= 0) {
      pieces.push(piece.subarray(start))
      length += piece.length - start
      if (length > maxMessage)
        throw new OvsdbProtocolError(`The OVSDB server sends more than ${maxMessage} bytes at once.`)
    }
    return texts
  }
}
