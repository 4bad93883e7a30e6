import { InvalidX509 } from '../invalid-x509.js'
import { decodeUtf8 } from './asn1.js'
import { type AttributeType, attributeTypeOf, attributeTypes } from './attribute-types.js'
import { encodeObjectIdentifier } from './object-identifier.js'

/** One attribute of a name: its type is a dotted object identifier, its value text. */
export type NameAttribute = { type: string; value: string }

/** A relative distinguished name (RDN): its attributes, usually one. */
export type RelativeName = readonly NameAttribute[]

/** A distinguished name in the order of certificates: the most general part, such as the country, first. */
export type DistinguishedName = readonly RelativeName[]

/** Maximum length of the text of a name. */
const MAX_CHARACTERS = 2000
const MAX_PARTS = 32

/**
 * Parses the text form of RFC 4514, such as `CN=www.example.com,OU=Web,O=Example\, Inc.`, whose first part is
 * the most specific. Ignores white space around parts. Pure.
 * @throws InvalidX509 that names the part and its fault
 */
export function parseDistinguishedName(text: string): DistinguishedName {
  if (text.length > MAX_CHARACTERS) throw tooLong()
  const parts: NameAttribute[][] = [[]]
  let rest = text
  for (;;) {
    const { attribute, after } = readAttribute(rest)
    parts.at(-1)?.push(attribute)
    if (after === '') break
    if (after[0] === ',') parts.push([])
    rest = after.slice(1)
  }
  const name = parts.reverse()
  requireUsableName(name)
  return name
}

const tooLong = () => new InvalidX509(`A subject DN has at most ${MAX_CHARACTERS} characters.`)

/** The text form of RFC 4514; parseDistinguishedName reads it back as the same name. Pure. */
export function formatDistinguishedName(name: DistinguishedName): string {
  const format = ({ type, value }: NameAttribute) => `${attributeTypeOf(type)?.name ?? type}=${escapeValue(value)}`
  return [...name]
    .reverse()
    .map(part => part.map(format).join('+'))
    .join(',')
}

/**
 * Checks an untrusted name.
 * @throws InvalidX509 for too many parts, and for values that are empty, too long for their type or have
 *   invalid characters
 */
export function requireUsableName(name: DistinguishedName): void {
  if (name.length > MAX_PARTS) throw new InvalidX509(`A subject DN has at most ${MAX_PARTS} parts.`)
  if (formatDistinguishedName(name).length > MAX_CHARACTERS) throw tooLong()
  for (const part of name) {
    const types = part.map(({ type }) => type)
    if (new Set(types).size < types.length)
      throw new InvalidX509('A part of the subject DN has the same attribute twice.')
    for (const { type, value } of part) requireUsableValue(attributeTypeOf(type), value)
  }
}

function requireUsableValue(type: AttributeType | undefined, value: string): void {
  const label = type?.name ?? 'An attribute'
  const maxCharacters = type?.maxCharacters ?? 255
  if (value === '') throw new InvalidX509(`The subject DN is invalid: ${label} is empty.`)
  if ([...value].length > maxCharacters) {
    throw new InvalidX509(`The subject DN is invalid: ${label} has more than ${maxCharacters} characters.`)
  }
  if (/[\p{Control}\p{Surrogate}]/u.test(value)) {
    throw new InvalidX509(`The subject DN is invalid: ${label} contains a control character.`)
  }
  if (type !== undefined && !type.syntax.pattern.test(value)) {
    throw new InvalidX509(`The subject DN is invalid: ${label} must be ${type.syntax.description}.`)
  }
}

/** The attribute at the start of a text, and the rest: empty, or starting with a separator. */
function readAttribute(text: string): { attribute: NameAttribute; after: string } {
  const match = /^\s*([^=,+\s]{1,300})\s*=\s*/.exec(text)
  const [whole, typeText] = match ?? []
  if (whole === undefined || typeText === undefined) {
    throw new InvalidX509(`The subject DN cannot be parsed at "${excerpt(text)}": expected type=value.`)
  }
  const type = typeByName(typeText)
  if (type === null) throw new InvalidX509(`The subject DN has an unknown attribute: "${excerpt(typeText)}".`)
  const { value, after } = readValue(text.slice(whole.length))
  return { attribute: { type, value }, after }
}

function typeByName(text: string): string | null {
  const spelt = text.toLowerCase()
  const known = attributeTypes.find(({ names }) => names.includes(spelt))
  if (known !== undefined) return known.oid
  const dotted = text.replace(/^oid\./i, '')
  return encodeObjectIdentifier(dotted) === null ? null : dotted
}

/** A value up to the next unescaped separator. */
function readValue(text: string): { value: string; after: string } {
  if (text.startsWith('#')) throw new InvalidX509('Hexadecimal values (#...) in a subject DN are not supported.')
  const bytes: Buffer[] = []
  // Bytes up to here survive the trimming of trailing white space, which does not remove escaped white space.
  let kept = 0
  let length = 0
  let at = 0
  for (; at < text.length && !/[,+]/.test(text.charAt(at)); ) {
    const escaped = text.charAt(at) === '\\' ? unescapedAt(text, at) : null
    if (escaped === null && /["<>;\\]/.test(text.charAt(at))) {
      throw new InvalidX509(
        `The subject DN cannot be parsed at "${excerpt(text.slice(at))}": this character must be escaped.`,
      )
    }
    const character = String.fromCodePoint(text.codePointAt(at) ?? 0)
    const piece = escaped?.bytes ?? Buffer.from(character, 'utf8')
    at += escaped?.width ?? character.length
    bytes.push(piece)
    length += piece.length
    if (escaped !== null || !/\s/.test(character)) kept = length
  }
  const value = decodeUtf8(Buffer.concat(bytes).subarray(0, kept))
  if (value === null) throw new InvalidX509('A value of the subject DN is not UTF-8.')
  return { value, after: text.slice(at) }
}

function unescapedAt(text: string, at: number): { bytes: Buffer; width: number } | null {
  const next = text.slice(at + 1, at + 3)
  if (/^[0-9a-f]{2}$/i.test(next)) return { bytes: Buffer.from(next, 'hex'), width: 3 }
  return /^[ "#+,;<=>\\]/.test(next) ? { bytes: Buffer.from(next.charAt(0)), width: 2 } : null
}

const escapeValue = (value: string): string =>
  value
    .replace(/["+,;<>\\]/g, '\\$&')
    .replace(/^[ #]| $/g, '\\$&')
    // Other white space would be trimmed at either end.
    .replace(/^[^\S ]|[^\S ]$/gu, space => Buffer.from(space).toString('hex').replace(/../g, '\\$&'))

const excerpt = (text: string): string => text.slice(0, 40)
