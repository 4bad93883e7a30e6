import { createHash } from 'node:crypto'
import { pemBlocks } from './pem-blocks.js'

/** The digest of a chain as a peer sent it, to compare with that of assembled material. */
export function digestOf(ders: readonly Buffer[]): string {
  const hash = createHash('sha256')
  for (const der of ders) hash.update(der)
  return hash.digest('hex')
}

/** The digest of what is public in assembled PEM. */
export const digestOfPem = (pem: string): string =>
  digestOf([...pemBlocks(pem, 'CERTIFICATE'), ...pemBlocks(pem, 'X509 CRL')])
