/** Maximum content of an object identifier; certificates use no longer ones. */
const MAX_BYTES = 64
/** One arc. 64 bytes hold at most 448 bits, or 135 digits, so this bounds the arithmetic. */
const ARC = '(?:0|[1-9]\\d{0,134})'
const DOTTED = new RegExp(`^(?:[01]\\.(?:\\d|[123]\\d)|2\\.${ARC})(?:\\.${ARC}){0,63}$`)

/**
 * The DER content of an object identifier; null for other text, and for one longer than 64 bytes. Pure.
 * @param dotted such as `2.5.4.3`
 */
export function encodeObjectIdentifier(dotted: string): Buffer | null {
  if (!DOTTED.test(dotted)) return null
  const [first = 0n, second = 0n, ...others] = dotted.split('.').map(BigInt)
  const bytes = Buffer.from([first * 40n + second, ...others].flatMap(inBase128))
  return bytes.length > MAX_BYTES ? null : bytes
}

/** The dotted text of an object identifier; null unless `encodeObjectIdentifier` writes the same bytes. Pure. */
export function readObjectIdentifier(content: Buffer): string | null {
  if (content.length === 0 || content.length > MAX_BYTES) return null
  const numbers: bigint[] = []
  let number = 0n
  for (const byte of content) {
    number = (number << 7n) | BigInt(byte & 0x7f)
    if (byte >= 0x80) continue
    numbers.push(number)
    number = 0n
  }
  const [joint = 0n, ...others] = numbers
  const first = joint < 80n ? joint / 40n : 2n
  const dotted = [first, joint - first * 40n, ...others].join('.')
  return encodeObjectIdentifier(dotted)?.equals(content) === true ? dotted : null
}

/** Base 128, big-endian, without leading zeros; the high bit marks all bytes but the last. */
function inBase128(number: bigint): number[] {
  const bytes = [Number(number & 0x7fn)]
  for (let rest = number >> 7n; rest > 0n; rest >>= 7n) bytes.unshift(Number(rest & 0x7fn) | 0x80)
  return bytes
}
