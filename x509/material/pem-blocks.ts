import { decodeBase64 } from '../encoding/pem.js'
import { Unusable } from './material.js'

/** The DER of every PEM block with this label, in order. Ignores text between them. @throws Unusable */
export function pemBlocks(text: string, label: string): readonly Buffer[] {
  const [begin, end] = [`-----BEGIN ${label}-----`, `-----END ${label}-----`]
  return text
    .split(begin)
    .slice(1)
    .map(rest => {
      const length = rest.indexOf(end)
      const der = length === -1 ? null : decodeBase64(rest.slice(0, length))
      if (der === null) throw new Unusable(`a PEM block "${label}" is damaged`)
      return der
    })
}

/** PEM is ASCII; between its blocks may be any bytes. */
export const asLatin1 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1')
