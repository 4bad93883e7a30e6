import type { StringKind } from './asn1.js'

/** A type of attribute that names of certificates use. */
export type AttributeType = {
  oid: string
  /** As it is written. */
  name: string
  /** As it may be read, in lower case. */
  names: readonly string[]
  /** How its value is stored. */
  kind: StringKind
  /** The upper bound of RFC 5280. */
  mostCharacters: number
  allows: RegExp
}

const anything = /^/
const PRINTABLE = /^[A-Za-z0-9 '()+,\-./:=?]+$/
const ASCII = /^[\x20-\x7e]+$/

const type = (
  oid: string,
  [name, ...others]: [string, ...string[]],
  mostCharacters: number,
  kind: StringKind = 'utf8',
  allows: RegExp = anything,
): AttributeType => ({
  oid,
  name,
  names: [name, ...others].map(each => each.toLowerCase()),
  kind,
  mostCharacters,
  allows,
})

export const attributeTypes: readonly AttributeType[] = [
  type('2.5.4.3', ['CN', 'commonName'], 64),
  type('2.5.4.4', ['SN', 'surname'], 64),
  type('2.5.4.5', ['serialNumber'], 64, 'printable', PRINTABLE),
  type('2.5.4.6', ['C', 'countryName'], 2, 'printable', /^[A-Za-z]{2}$/),
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
