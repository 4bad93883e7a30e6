import * as z from 'zod'
import { readLeafCertificate } from '../../../../x509/leaf-certificate.js'
import type { RenewalInfo } from '../ca-backend.js'
import type { AcmeClient } from './client/client.js'

const suggested = z.object({ suggestedWindow: z.object({ start: z.string(), end: z.string() }) })

const MIN_SECONDS = 60
const MAX_SECONDS = 86_400
/** When the CA does not say when to ask again. */
const DEFAULT_SECONDS = 21_600

/** What names a certificate in renewal information (RFC 9773, 4.1); null if its issuer has no key identifier. */
export function certificateIdOf(pem: string): string | null {
  const { authorityKeyIdentifier, serialBytes } = readLeafCertificate(pem)
  return authorityKeyIdentifier === null
    ? null
    : `${authorityKeyIdentifier.toString('base64url')}.${serialBytes.toString('base64url')}`
}

/**
 * The CA's renewal information about a certificate.
 * @returns null if the CA offers none
 * @throws AcmeProblem, Unreachable
 */
export async function readRenewalInfo(
  client: AcmeClient,
  pem: string,
  signal: AbortSignal,
): Promise<RenewalInfo | null> {
  const { renewalInfo } = await client.directory(signal)
  const id = certificateIdOf(pem)
  if (renewalInfo === undefined || id === null) return null
  const { value, retryAfter } = await client.get(`${renewalInfo.replace(/\/$/, '')}/${id}`, suggested, signal)
  const [start, end] = [Date.parse(value.suggestedWindow.start), Date.parse(value.suggestedWindow.end)]
  const window = Number.isNaN(start) || Number.isNaN(end) || end <= start ? null : { start, end }
  return { window, againSeconds: Math.min(MAX_SECONDS, Math.max(MIN_SECONDS, retryAfter ?? DEFAULT_SECONDS)) }
}
