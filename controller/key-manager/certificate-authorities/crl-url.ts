import type { CaService } from './ca-backend.js'

/** Where revocation lists can be fetched without a token: they are signed and hold no secret, and whoever checks a certificate has no token. */
export const CRL_PREFIX = '/crl/'
export const CRL_ROUTE = `${CRL_PREFIX}:id`

/** What certificates say of their issuer's revocation list; null when it is not known under which URL clients reach this API. */
export const crlUrlOf = ({ public_url }: CaService['config'], caId: string): string | null =>
  public_url === undefined ? null : `${public_url.replace(/\/+$/, '')}${CRL_PREFIX}${caId}.crl`
