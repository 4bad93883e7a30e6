import type { CaService } from './ca-backend.js'

/**
 * Serves revocation lists without a token: they are signed and not secret, and clients that check
 * certificates have none.
 */
export const CRL_PREFIX = '/crl/'
export const CRL_ROUTE = `${CRL_PREFIX}:id`

/** URL of a CA's revocation list, for its certificates; null if public_url is not set. */
export const crlUrlOf = ({ public_url }: CaService['config'], caId: string): string | null =>
  public_url === undefined ? null : `${public_url.replace(/\/+$/, '')}${CRL_PREFIX}${caId}.crl`
