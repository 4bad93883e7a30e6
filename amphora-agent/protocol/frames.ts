import { MAX_FRAME } from './messages.js'

/** Encodes a value as a frame: a 4-byte big-endian length, then the JSON. @throws RangeError above MAX_FRAME */
export function encodeFrame(value: unknown): Buffer {
  const json = Buffer.from(JSON.stringify(value))
  if (json.length > MAX_FRAME) throw new RangeError(`a frame of ${json.length} bytes exceeds the limit of ${MAX_FRAME}`)
  const head = Buffer.alloc(4)
  head.writeUInt32BE(json.length)
  return Buffer.concat([head, json])
}

/** The stream cannot be decoded further: close the connection. */
export class FrameError extends Error {
  override name = 'FrameError'
}

/**
 * Decodes a stream that arrives in arbitrary pieces. Buffers at most one frame and one piece.
 * @returns a function that takes the next piece and returns the values it completes
 * @throws FrameError (from that function) for a frame that exceeds the limit or is not JSON
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
        if (length > limit) throw new FrameError(`a frame of ${length} bytes exceeds the limit of ${limit}`)
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
