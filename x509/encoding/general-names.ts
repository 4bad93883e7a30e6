import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'
import { InvalidX509 } from '../invalid-x509.js'
import { type Asn1, bytesIn, contextTag, readDer, sequence, sequenceIn, taggedBytes } from './asn1.js'

/** A subject alternative name. */
export type GeneralName = { kind: 'email' | 'dns' | 'uri' | 'ip'; value: string }

const TAGS: Readonly<Record<GeneralName['kind'], number>> = { email: 1, dns: 2, uri: 6, ip: 7 }
const MAX_NAMES = 100

const LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?'
const DNS_NAME = new RegExp(`^(?:\\*\\.)?${LABEL}(?:\\.${LABEL})*$`)
const EMAIL = new RegExp(`^[A-Za-z0-9.!#$%&'*+/=?^_\`{|}~-]{1,64}@${LABEL}(?:\\.${LABEL})*$`)

/** A host name, or a wildcard for the hosts one label below. */
export const isDnsName = (text: string): boolean => text.length <= 253 && DNS_NAME.test(text) && isIP(text) === 0

const isUri = (text: string): boolean =>
  text.length <= 2000 && /^[a-z][a-z0-9+.-]*:[\x21-\x7e]+$/i.test(text) && URL.canParse(text)

const VALID: Readonly<Record<GeneralName['kind'], (text: string) => boolean>> = {
  email: text => text.length <= 254 && EMAIL.test(text),
  dns: isDnsName,
  uri: isUri,
  ip: text => isIP(text) !== 0,
}

/** Encodes the ASN.1 type GeneralNames. */
export const encodeGeneralNames = (names: readonly GeneralName[]): Asn1 =>
  sequence(...names.map(({ kind, value }) => taggedBytes(TAGS[kind], bytesOf(kind, value))))

const bytesOf = (kind: GeneralName['kind'], value: string): Buffer =>
  kind === 'ip' ? Buffer.from(ipaddr.parse(value).toByteArray()) : Buffer.from(value, 'ascii')

/**
 * Reads the DER of untrusted GeneralNames.
 * @throws InvalidX509 for kinds other than e-mail, DNS, URI and IP address, and for invalid names
 */
export function decodeGeneralNames(der: Buffer): GeneralName[] {
  const encoded = sequenceIn(readDer(der, 'subject alternative names'))
  if (encoded === null || encoded.length === 0) throw new InvalidX509('The subject alternative names cannot be read.')
  if (encoded.length > MAX_NAMES) throw new InvalidX509(`There are more than ${MAX_NAMES} subject alternative names.`)
  return encoded.map(name => {
    const kind = KINDS.find(each => TAGS[each] === contextTag(name))
    const bytes = bytesIn(name)
    if (kind === undefined || bytes === null) {
      throw new InvalidX509('Only e-mail addresses, DNS names, URIs and IP addresses can be subject alternative names.')
    }
    const value = kind === 'ip' ? addressIn(bytes) : bytes.toString('latin1')
    if (!VALID[kind](value)) throw new InvalidX509(`A subject alternative name is not a valid ${LABELS[kind]}.`)
    return { kind, value }
  })
}

const KINDS = ['email', 'dns', 'uri', 'ip'] as const
const LABELS: Readonly<Record<GeneralName['kind'], string>> = {
  email: 'e-mail address',
  dns: 'DNS name',
  uri: 'URI',
  ip: 'IP address',
}

const addressIn = (bytes: Buffer): string =>
  bytes.length === 4 || bytes.length === 16 ? ipaddr.fromByteArray([...bytes]).toString() : ''
