import { decodeBase64 } from '../../x509/encoding/pem.js'
import { Unusable } from './material.js'

/** The DER of every PEM block with this label, in order; text between them is passed over. @throws Unusable */
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

/** PEM is ASCII, and what stands between its blocks may be anything. */
export const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1')
