import { InvalidX509 } from '../invalid-x509.js'

/** DER as PEM text, with a line break at its end. */
export function pemOf(label: string, der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`
}

/**
 * The DER of the one PEM block in a text, in time that grows with its length only. Text around the block is passed over.
 * @param labels of which the block may have any
 * @param what it is, for the message
 * @throws InvalidX509 when there is no such block, or a second block of any kind
 */
export function derOfPem(text: string, labels: readonly string[], what: string): Buffer {
  const label = labels.find(each => text.includes(`-----BEGIN ${each}-----`))
  if (label === undefined) throw new InvalidX509(`The ${what} holds no PEM block "${labels[0]}".`)
  const begin = `-----BEGIN ${label}-----`
  const from = text.indexOf(begin) + begin.length
  const to = text.indexOf(`-----END ${label}-----`, from)
  if (to === -1) throw new InvalidX509(`The PEM block of the ${what} does not end.`)
  if (text.indexOf('-----BEGIN ') + begin.length !== from || text.indexOf('-----BEGIN ', from) !== -1) {
    throw new InvalidX509(`The ${what} holds more than one PEM block.`)
  }
  const der = decodeBase64(text.slice(from, to))
  if (der === null) throw new InvalidX509(`The PEM block of the ${what} is not base64.`)
  return der
}

/** The bytes of a base64 text, in which lines may be broken; null for anything else. */
export function decodeBase64(text: string): Buffer | null {
  const compact = text.replace(/[\r\n\t ]+/g, '')
  return compact.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(compact) ? Buffer.from(compact, 'base64') : null
}

/** Every certificate of a text that was written here, in order. */
export const certificatesIn = (text: string): readonly Buffer[] =>
  text
    .split(/(?=-----BEGIN CERTIFICATE-----)/)
    .filter(block => block.trim() !== '')
    .map(block => derOfPem(block, ['CERTIFICATE'], 'certificate'))
