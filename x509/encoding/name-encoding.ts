import { InvalidX509 } from '../invalid-x509.js'
import {
  type Asn1,
  characterString,
  objectIdentifier,
  objectIdentifierIn,
  sequence,
  sequenceIn,
  setIn,
  setOf,
  textIn,
} from './asn1.js'
import { attributeTypeOf } from './attribute-types.js'
import { type DistinguishedName, type NameAttribute, requireUsableName } from './distinguished-name.js'

/** A name as ASN.1. */
export const encodeName = (name: DistinguishedName): Asn1 =>
  sequence(
    ...name.map(part =>
      setOf(
        ...part.map(({ type, value }) =>
          sequence(objectIdentifier(type), characterString(attributeTypeOf(type)?.kind ?? 'utf8', value)),
        ),
      ),
    ),
  )

/** @throws InvalidX509 if it is not a name, or one that `requireUsableName` refuses */
export function decodeName(encoded: Asn1 | undefined): DistinguishedName {
  const parts = sequenceIn(encoded)
  if (parts === null) throw new InvalidX509('The subject is not a distinguished name.')
  const name = parts.map(part => {
    const attributes = setIn(part)
    if (attributes === null || attributes.length === 0) {
      throw new InvalidX509('The subject is not a distinguished name.')
    }
    return attributes.map(decodeAttribute)
  })
  requireUsableName(name)
  return name
}

function decodeAttribute(encoded: Asn1): NameAttribute {
  const [typeValue, textValue, ...others] = sequenceIn(encoded) ?? []
  const type = objectIdentifierIn(typeValue)
  const value = textIn(textValue)
  if (type === null || value === null || others.length > 0) {
    throw new InvalidX509('The subject has an attribute whose value is not text.')
  }
  return { type, value }
}
