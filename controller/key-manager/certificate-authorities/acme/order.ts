import { isIP } from 'node:net'
import * as z from 'zod'
import type { CertificateRequest } from '../../../../x509/certificate-request.js'
import { isDnsName } from '../../../../x509/encoding/general-names.js'
import type { Account, AcmeClient, Answered } from './client/client.js'
import { AcmeProblem } from './client/problem.js'

const url = z.string().startsWith('https://')

/** An order of RFC 8555, 7.1.3. */
export const acmeOrder = z.object({
  status: z.enum(['pending', 'ready', 'processing', 'valid', 'invalid']),
  authorizations: z.array(url).max(200),
  finalize: url,
  certificate: url.optional(),
  error: z.unknown().optional(),
})

export type AcmeOrder = z.output<typeof acmeOrder>

const acmeChallenge = z.object({
  type: z.string(),
  url,
  status: z.string(),
  // Load balancers serve it as part of a path.
  token: z
    .string()
    .regex(/^[A-Za-z0-9_-]{1,500}$/)
    .optional(),
  error: z.unknown().optional(),
})

/** An authorization of RFC 8555, 7.1.4. */
export const acmeAuthorization = z.object({
  status: z.enum(['pending', 'valid', 'invalid', 'deactivated', 'expired', 'revoked']),
  // Hooks get it, and they may be shell scripts.
  identifier: z.object({ type: z.string(), value: z.string().refine(name => isDnsName(name) || isIP(name) !== 0) }),
  wildcard: z.boolean().optional(),
  expires: z.string().optional(),
  challenges: z.array(acmeChallenge),
})

export type AcmeAuthorization = z.output<typeof acmeAuthorization>

export type Identifier = { type: 'dns' | 'ip'; value: string }

/** The names of a request as an ACME order has them; null if it has others, or none. Pure. */
export function identifiersOf({ alternativeNames }: Pick<CertificateRequest, 'alternativeNames'>): Identifier[] | null {
  const found = new Map<string, Identifier>()
  for (const { kind, value } of alternativeNames) {
    if (kind !== 'dns' && kind !== 'ip') return null
    found.set(value.toLowerCase(), { type: kind, value: value.toLowerCase() })
  }
  return found.size === 0 ? null : [...found.values()]
}

/**
 * @param replaces the id of the certificate to replace (RFC 9773); the CA may refuse it, which changes nothing else
 * @returns URL of the new order
 */
export async function createOrder(
  client: AcmeClient,
  account: Account,
  { identifiers, replaces }: { identifiers: readonly Identifier[]; replaces: string | null },
  signal: AbortSignal,
): Promise<string> {
  const { newOrder } = await client.directory(signal)
  const ask = (payload: unknown) => client.post(account, newOrder, payload, acmeOrder, signal)
  const made = await (replaces === null
    ? ask({ identifiers })
    : ask({ identifiers, replaces }).catch((error): Promise<Answered<AcmeOrder>> => {
        if (!(error instanceof AcmeProblem) || !REFUSED_REPLACEMENT.includes(error.kind)) throw error
        return ask({ identifiers })
      }))
  if (made.location === null) throw new AcmeProblem('', 'The CA named no URL for the new order.', 0, null)
  return made.location
}

const REFUSED_REPLACEMENT = ['alreadyReplaced', 'malformed', 'unauthorized']
