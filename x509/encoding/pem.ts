import { InvalidX509 } from '../invalid-x509.js'

/** DER as PEM, with a final line break. */
export function encodePem(label: string, der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? []
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`
}

/**
 * The DER of the only PEM block in a text, in linear time. Ignores text around the block.
 * @param labels the accepted labels
 * @param what names the content in messages
 * @throws InvalidX509 if there is no such block, or a second block of any kind
 */
export function decodePem(text: string, labels: readonly string[], what: string): Buffer {
  const label = labels.find(each => text.includes(`-----BEGIN ${each}-----`))
  if (label === undefined) throw new InvalidX509(`The ${what} has no PEM block "${labels[0]}".`)
  const begin = `-----BEGIN ${label}-----`
  const from = text.indexOf(begin) + begin.length
  const to = text.indexOf(`-----END ${label}-----`, from)
  if (to === -1) throw new InvalidX509(`The PEM block of the ${what} has no END line.`)
  if (text.indexOf('-----BEGIN ') + begin.length !== from || text.indexOf('-----BEGIN ', from) !== -1) {
    throw new InvalidX509(`The ${what} has more than one PEM block.`)
  }
  const der = decodeBase64(text.slice(from, to))
  if (der === null) throw new InvalidX509(`The PEM block of the ${what} is not base64.`)
  return der
}

/** Decodes base64 that may contain line breaks and blanks; null for other text. */
export function decodeBase64(text: string): Buffer | null {
  const compact = text.replace(/[\r\n\t ]+/g, '')
  return compact.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(compact) ? Buffer.from(compact, 'base64') : null
}

/** All certificates of a PEM text that `encodePem` wrote, in order. */
export const certificatesIn = (text: string): readonly Buffer[] =>
  text
    .split(/(?=-----BEGIN CERTIFICATE-----)/)
    .filter(block => block.trim() !== '')
    .map(block => decodePem(block, ['CERTIFICATE'], 'certificate'))
