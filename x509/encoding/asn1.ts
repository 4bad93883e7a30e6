import type forge from 'node-forge'
import asn1 from 'node-forge/lib/asn1.js'
import { InvalidX509 } from '../invalid-x509.js'
import { encodeObjectIdentifier, readObjectIdentifier } from './object-identifier.js'

export type Asn1 = forge.asn1.Asn1

const { Class, Type } = asn1

/** Maximum nesting of the DER read here; an extension of a certificate request is at level 9. */
const MAX_DEPTH = 24

/**
 * Reads untrusted DER. Refuses anything but strict DER, so writing the value gives exactly these bytes, and
 * writing a part of it gives the bytes of that part.
 * @param label names the value in the message
 * @throws InvalidX509
 */
export function readDer(bytes: Buffer, label: string): Asn1 {
  try {
    const value = asn1.fromDer(bytes.toString('latin1'), {
      strict: true,
      parseAllBytes: true,
      decodeBitStrings: false,
      maxDepth: MAX_DEPTH,
    })
    if (writeDer(value).equals(bytes)) return value
  } catch {
    // All faults get the same message.
  }
  throw new InvalidX509(`The ${label} is not valid DER.`)
}

export const writeDer = (value: Asn1): Buffer => Buffer.from(asn1.toDer(value).getBytes(), 'latin1')

const universal = (type: forge.asn1.Type, constructed: boolean, value: string | Asn1[]): Asn1 =>
  asn1.create(Class.UNIVERSAL, type, constructed, value)

export const sequence = (...members: Asn1[]): Asn1 => universal(Type.SEQUENCE, true, members)

/** A SET OF in DER order: sorted by the bytes of its members. */
export const setOf = (...members: Asn1[]): Asn1 =>
  universal(
    Type.SET,
    true,
    members
      .map(member => ({ member, bytes: writeDer(member) }))
      .sort((a, b) => Buffer.compare(a.bytes, b.bytes))
      .map(({ member }) => member),
  )

export function objectIdentifier(dotted: string): Asn1 {
  const content = encodeObjectIdentifier(dotted)
  if (content === null) throw new Error(`${dotted} is not an object identifier.`)
  return universal(Type.OID, false, content.toString('latin1'))
}

export const booleanValue = (value: boolean): Asn1 => universal(Type.BOOLEAN, false, value ? '\xff' : '\0')

/** @param magnitude big-endian, never negative */
export function integer(magnitude: Buffer | number): Asn1 {
  if (typeof magnitude === 'number') return universal(Type.INTEGER, false, asn1.integerToDer(magnitude).getBytes())
  const firstUsed = magnitude.findIndex(byte => byte !== 0)
  const bytes = firstUsed === -1 ? Buffer.of(0) : magnitude.subarray(firstUsed)
  const positive = (bytes[0] ?? 0) < 0x80 ? bytes : Buffer.concat([Buffer.of(0), bytes])
  return universal(Type.INTEGER, false, positive.toString('latin1'))
}

export const enumerated = (value: number): Asn1 => universal(Type.ENUMERATED, false, String.fromCharCode(value))

export const nullValue = (): Asn1 => universal(Type.NULL, false, '')

export const octetString = (bytes: Buffer): Asn1 => universal(Type.OCTETSTRING, false, bytes.toString('latin1'))

/** @param unusedBits of the last byte */
export const bitString = (bytes: Buffer, unusedBits = 0): Asn1 =>
  universal(Type.BITSTRING, false, String.fromCharCode(unusedBits) + bytes.toString('latin1'))

/**
 * A named bit list such as KeyUsage: bit 0 is the highest bit of the first byte. DER requires omitting
 * trailing zeros.
 */
export function namedBits(numbers: readonly number[]): Asn1 {
  const highest = Math.max(...numbers)
  const bytes = Buffer.alloc(Math.floor(highest / 8) + 1)
  for (const number of numbers) {
    const index = Math.floor(number / 8)
    bytes.writeUInt8(bytes.readUInt8(index) | (0x80 >> (number % 8)), index)
  }
  return bitString(bytes, 7 - (highest % 8))
}

export type StringKind = 'utf8' | 'printable' | 'ia5'

const STRING_TYPES: Readonly<Record<StringKind, forge.asn1.Type>> = {
  utf8: Type.UTF8,
  printable: Type.PRINTABLESTRING,
  ia5: Type.IA5STRING,
}

export const characterString = (kind: StringKind, text: string): Asn1 =>
  universal(STRING_TYPES[kind], false, Buffer.from(text, 'utf8').toString('latin1'))

/** UTCTime through 2049, GeneralizedTime from 2050 on (RFC 5280); whole seconds. */
export function time(date: Date): Asn1 {
  return date.getUTCFullYear() < 2050
    ? universal(Type.UTCTIME, false, asn1.dateToUtcTime(date))
    : universal(Type.GENERALIZEDTIME, false, asn1.dateToGeneralizedTime(date))
}

/** [number] EXPLICIT, or a constructed [number] IMPLICIT. */
export const tagged = (number: number, ...members: Asn1[]): Asn1 =>
  asn1.create(Class.CONTEXT_SPECIFIC, number, true, members)

/** A primitive [number] IMPLICIT. */
export const taggedBytes = (number: number, bytes: Buffer): Asn1 =>
  asn1.create(Class.CONTEXT_SPECIFIC, number, false, bytes.toString('latin1'))

// Readers return null for a value of another type.

const isUniversal = ({ tagClass, type }: Asn1, expected: forge.asn1.Type): boolean =>
  tagClass === Class.UNIVERSAL && type === expected

const membersOf = ({ value }: Asn1): readonly Asn1[] | null => (Array.isArray(value) ? value : null)

const contentOf = ({ value }: Asn1): Buffer | null => (typeof value === 'string' ? Buffer.from(value, 'latin1') : null)

export const sequenceIn = (value: Asn1 | undefined): readonly Asn1[] | null =>
  value !== undefined && isUniversal(value, Type.SEQUENCE) ? membersOf(value) : null

export const setIn = (value: Asn1 | undefined): readonly Asn1[] | null =>
  value !== undefined && isUniversal(value, Type.SET) ? membersOf(value) : null

export const taggedIn = (value: Asn1 | undefined, number: number): readonly Asn1[] | null =>
  value !== undefined && contextTag(value) === number ? membersOf(value) : null

/** The number of a context-specific tag. */
export const contextTag = ({ tagClass, type }: Asn1): number | null =>
  tagClass === Class.CONTEXT_SPECIFIC ? type : null

/** The content of a primitive value. */
export const bytesIn = (value: Asn1): Buffer | null => contentOf(value)

export function objectIdentifierIn(value: Asn1 | undefined): string | null {
  if (value === undefined || !isUniversal(value, Type.OID)) return null
  const bytes = contentOf(value)
  return bytes === null ? null : readObjectIdentifier(bytes)
}

/** A non-negative integer below 2^31. */
export function smallIntegerIn(value: Asn1 | undefined): number | null {
  const bytes = value !== undefined && isUniversal(value, Type.INTEGER) ? contentOf(value) : null
  if (bytes === null || bytes.length === 0 || bytes.length > 4 || (bytes[0] ?? 0) >= 0x80) return null
  return bytes.readUIntBE(0, bytes.length)
}

export const integerBytesIn = (value: Asn1 | undefined): Buffer | null =>
  value !== undefined && isUniversal(value, Type.INTEGER) ? contentOf(value) : null

export function enumeratedIn(value: Asn1 | undefined): number | null {
  const bytes = value !== undefined && isUniversal(value, Type.ENUMERATED) ? contentOf(value) : null
  return bytes?.length === 1 ? (bytes[0] ?? null) : null
}

/** A GeneralizedTime of whole seconds in UTC, the only form that DER certificates and their relatives have. */
export function generalizedTimeIn(value: Asn1 | undefined): Date | null {
  const bytes = value !== undefined && isUniversal(value, Type.GENERALIZEDTIME) ? contentOf(value) : null
  const found = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(bytes?.toString('latin1') ?? '')
  if (found === null) return null
  const [, year, month, day, hour, minute, second] = found
  const text = `${year}-${month}-${day}T${hour}:${minute}:${second}.000Z`
  const date = new Date(text)
  // Not a day that JavaScript has moved to the next month.
  return !Number.isNaN(date.getTime()) && date.toISOString() === text ? date : null
}

export const octetStringIn = (value: Asn1 | undefined): Buffer | null =>
  value !== undefined && isUniversal(value, Type.OCTETSTRING) ? contentOf(value) : null

/** The bytes of a BIT STRING without unused bits. */
export function bitStringIn(value: Asn1 | undefined): Buffer | null {
  const bytes = value !== undefined && isUniversal(value, Type.BITSTRING) ? contentOf(value) : null
  return bytes?.[0] === 0 ? bytes.subarray(1) : null
}

const strictUtf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Text of the string types that names use. Of TeletexString, reads only ASCII. */
export function textIn(value: Asn1 | undefined): string | null {
  if (value === undefined || value.tagClass !== Class.UNIVERSAL || typeof value.value !== 'string') return null
  const ascii = () => (/^[\x20-\x7e]*$/.test(String(value.value)) ? String(value.value) : null)
  switch (value.type as number) {
    case Type.UTF8:
      return decodeUtf8(Buffer.from(value.value, 'latin1'))
    case Type.PRINTABLESTRING:
    case Type.IA5STRING:
    case TELETEX_STRING:
      return ascii()
    case Type.BMPSTRING:
      // JavaScript reads a surrogate pair as one character, but BMPString has no surrogates.
      return /[\ud800-\udfff]/.test(value.value) ? null : value.value
    default:
      return null
  }
}

const TELETEX_STRING = 20

/** Null if the bytes are not UTF-8. */
export function decodeUtf8(bytes: Buffer): string | null {
  try {
    return strictUtf8.decode(bytes)
  } catch {
    return null
  }
}
