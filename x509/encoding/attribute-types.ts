import type { StringKind } from './asn1.js'

/** An attribute type of distinguished names. */
export type AttributeType = {
  oid: string
  /** The name to write. */
  name: string
  /** The names to accept, in lower case. */
  names: readonly string[]
  /** The string type of its values. */
  kind: StringKind
  /** For most types the upper bound of RFC 5280; lower than its 32768 for surname, givenName and initials. */
  maxCharacters: number
  syntax: ValueSyntax
}

/** The values a type allows. The description completes "must be". */
type ValueSyntax = { pattern: RegExp; description: string }

const TEXT: ValueSyntax = { pattern: /^/, description: 'text' }
const PRINTABLE: ValueSyntax = {
  pattern: /^[A-Za-z0-9 '()+,\-./:=?]+$/,
  description: "letters, digits, spaces and '()+,-./:=?",
}
const ASCII: ValueSyntax = { pattern: /^[\x20-\x7e]+$/, description: 'printable ASCII' }
const COUNTRY: ValueSyntax = { pattern: /^[A-Za-z]{2}$/, description: 'two letters' }

const type = (
  oid: string,
  [name, ...others]: [string, ...string[]],
  maxCharacters: number,
  kind: StringKind = 'utf8',
  syntax: ValueSyntax = TEXT,
): AttributeType => ({
  oid,
  name,
  names: [name, ...others].map(each => each.toLowerCase()),
  kind,
  maxCharacters,
  syntax,
})

export const attributeTypes: readonly AttributeType[] = [
  type('2.5.4.3', ['CN', 'commonName'], 64),
  type('2.5.4.4', ['SN', 'surname'], 64),
  type('2.5.4.5', ['serialNumber'], 64, 'printable', PRINTABLE),
  type('2.5.4.6', ['C', 'countryName'], 2, 'printable', COUNTRY),
  type('2.5.4.7', ['L', 'localityName'], 128),
  type('2.5.4.8', ['ST', 'S', 'stateOrProvinceName'], 128),
  type('2.5.4.9', ['STREET', 'streetAddress'], 128),
  type('2.5.4.10', ['O', 'organizationName'], 64),
  type('2.5.4.11', ['OU', 'organizationalUnitName'], 64),
  type('2.5.4.12', ['title'], 64),
  type('2.5.4.13', ['description'], 255),
  type('2.5.4.17', ['postalCode'], 40),
  type('2.5.4.42', ['GN', 'givenName'], 64),
  type('2.5.4.43', ['initials'], 64),
  type('2.5.4.46', ['dnQualifier'], 64, 'printable', PRINTABLE),
  type('2.5.4.65', ['pseudonym'], 128),
  type('2.5.4.97', ['organizationIdentifier'], 255),
  type('0.9.2342.19200300.100.1.1', ['UID', 'userId'], 255),
  type('0.9.2342.19200300.100.1.25', ['DC', 'domainComponent'], 63, 'ia5', ASCII),
  type('1.2.840.113549.1.9.1', ['emailAddress', 'E', 'email'], 255, 'ia5', ASCII),
]

export const attributeTypeOf = (oid: string): AttributeType | undefined => attributeTypes.find(type => type.oid === oid)
