import { MAX_FRAME } from './messages.js'

/** One value as a frame: 4 bytes of big-endian length and that many bytes of JSON. @throws RangeError above MAX_FRAME */
export function encodeFrame(value: unknown): Buffer {
  const json = Buffer.from(JSON.stringify(value))
  if (json.length > MAX_FRAME) throw new RangeError(`a frame of ${json.length} bytes is larger than ${MAX_FRAME}`)
  const head = Buffer.alloc(4)
  head.writeUInt32BE(json.length)
  return Buffer.concat([head, json])
}

/** The stream cannot be read any further: close the connection. */
export class FrameError extends Error {
  override name = 'FrameError'
}

/**
 * Takes a stream apart, whatever its pieces. No more than one frame and one piece is ever held.
 * @returns a function that takes the next piece and gives the values that it completed
 * @throws FrameError (from that function) for a frame above the limit or one that is no JSON
 */
export function createFrameDecoder(limit = MAX_FRAME): (piece: Buffer) => unknown[] {
  let pieces: Buffer[] = []
  let held = 0
  let length: number | null = null

  const take = (size: number): Buffer => {
    const joined = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
    pieces = joined.length > size ? [joined.subarray(size)] : []
    held -= size
    return joined.subarray(0, size)
  }

  return piece => {
    const values: unknown[] = []
    pieces.push(piece)
    held += piece.length
    for (;;) {
      if (length === null) {
        if (held < 4) return values
        length = take(4).readUInt32BE()
        if (length > limit) throw new FrameError(`a frame of ${length} bytes is larger than ${limit}`)
      }
      if (held < length) return values
      values.push(parse(take(length)))
      length = null
    }
  }
}

function parse(json: Buffer): unknown {
  try {
    return JSON.parse(json.toString('utf8'))
  } catch {
    throw new FrameError('a frame is not JSON')
  }
}
