import { calculateJwkThumbprint, errors, flattenedVerify, importJWK, type JWK } from 'jose'
import * as z from 'zod'
import { AcmeProblem, malformed } from '../problem.js'

/** The algorithm of each kind of account key. */
const ALGORITHM_OF_CURVE = { 'P-256': 'ES256', 'P-384': 'ES384', Ed25519: 'EdDSA' } as const
const RSA = 'RS256'

export const ALGORITHMS: readonly string[] = [...Object.values(ALGORITHM_OF_CURVE), RSA]
const MAC_ALGORITHMS: readonly string[] = ['HS256', 'HS384', 'HS512']

const base64url = z.string().regex(/^[A-Za-z0-9_-]*$/)
const filled = base64url.min(1)

/** The flattened serialisation without an unprotected header (RFC 8555, 6.2). */
const flattenedJws = z.strictObject({ protected: filled, payload: base64url, signature: filled })

export type Jws = z.output<typeof flattenedJws>

/** The public members only: a key with a private part is refused before. */
const accountKey = z.discriminatedUnion('kty', [
  z.object({ kty: z.literal('EC'), crv: z.enum(['P-256', 'P-384']), x: filled, y: filled }),
  z.object({ kty: z.literal('OKP'), crv: z.literal('Ed25519'), x: filled }),
  z.object({ kty: z.literal('RSA'), n: filled, e: filled }),
])

/** A public key of an account, with the members that its thumbprint covers. */
export type AccountKey = z.output<typeof accountKey>

const PRIVATE_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k'] as const
const MIN_RSA_BYTES = 256
const MAX_RSA_BYTES = 512

const header = z.object({
  alg: z.string(),
  nonce: z.string().optional(),
  url: z.string().optional(),
  kid: z.string().max(500).optional(),
  jwk: z.record(z.string(), z.unknown()).optional(),
  // No extension may be critical; the unencoded payload (RFC 7797) is one.
  crit: z.undefined().optional(),
})

export type JwsHeader = z.output<typeof header>

/** @param what names it in messages @throws AcmeProblem malformed */
export function parseJws(value: unknown, what = 'request'): { jws: Jws; header: JwsHeader } {
  const parsed = flattenedJws.safeParse(value)
  if (!parsed.success) {
    throw malformed(`The ${what} is not a JWS with exactly the members protected, payload and signature, in base64url.`)
  }
  const protectedHeader = header.safeParse(jsonIn(parsed.data.protected))
  if (!protectedHeader.success) throw malformed(`The protected header of the ${what} is not valid.`)
  return { jws: parsed.data, header: protectedHeader.data }
}

/** The JSON in a base64url text; undefined if it is none. */
function jsonIn(encoded: string): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(encoded, 'base64url')))
  } catch {
    return undefined
  }
}

/**
 * The payload of a verified JWS: null for an empty one (POST-as-GET).
 * @throws AcmeProblem malformed
 */
export function payloadOf({ payload }: Jws): Readonly<Record<string, unknown>> | null {
  if (payload === '') return null
  const value = jsonIn(payload)
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>
  throw malformed('The payload is not a JSON object.')
}

/** Reads a key that a client sent. @throws AcmeProblem badPublicKey, malformed */
export function readAccountKey(jwk: unknown): AccountKey {
  const members = typeof jwk === 'object' && jwk !== null ? Object.keys(jwk) : []
  if (PRIVATE_MEMBERS.some(name => members.includes(name))) {
    throw malformed('The key has private members. Only the public key may be sent; replace this one.')
  }
  const parsed = accountKey.safeParse(jwk)
  if (!parsed.success) {
    throw new AcmeProblem('badPublicKey', 'An account key must be RSA, EC on P-256 or P-384, or Ed25519.')
  }
  const key = parsed.data
  if (key.kty === 'RSA') requireStrongRsa(key)
  return key
}

function requireStrongRsa({ n, e }: { n: string; e: string }): void {
  const modulus = Buffer.from(n, 'base64url')
  const exponent = Buffer.from(e, 'base64url')
  const isStrong =
    modulus.length >= MIN_RSA_BYTES &&
    modulus.length <= MAX_RSA_BYTES &&
    (modulus[0] ?? 0) >= 0x80 &&
    modulus.at(-1)! % 2 === 1
  if (isStrong && exponent.length >= 1 && exponent.length <= 4 && exponent.readUIntBE(0, exponent.length) >= 3) return
  throw new AcmeProblem('badPublicKey', 'An RSA key must have 2048 to 4096 bits and an ordinary exponent.')
}

const algorithmOf = (key: AccountKey): string => (key.kty === 'RSA' ? RSA : ALGORITHM_OF_CURVE[key.crv])

/** The thumbprint of a key (RFC 7638), in base64url. */
export const thumbprintOf = (key: JWK): Promise<string> => calculateJwkThumbprint(key, 'sha256')

/** @throws AcmeProblem badSignatureAlgorithm, with the algorithms that are accepted */
export function requireAlgorithm({ alg }: JwsHeader): void {
  if (ALGORITHMS.includes(alg)) return
  throw new AcmeProblem('badSignatureAlgorithm', `The algorithm must be one of ${ALGORITHMS.join(', ')}.`, {
    members: { algorithms: ALGORITHMS },
  })
}

/** @throws AcmeProblem malformed if the key did not sign it, badPublicKey if the key is not a valid one */
export async function verifyWithKey(jws: Jws, key: AccountKey): Promise<void> {
  const algorithm = algorithmOf(key)
  const imported = await importJWK(key, algorithm).catch(() => {
    throw new AcmeProblem('badPublicKey', 'The key is not a valid public key.')
  })
  if (await isSignedWith(jws, imported, [algorithm])) return
  throw malformed('The signature of the request is not valid.')
}

/** Whether a JWS has the MAC of a key. */
export const isSignedWithMac = (jws: Jws, key: Buffer): Promise<boolean> => isSignedWith(jws, key, MAC_ALGORITHMS)

async function isSignedWith(
  jws: Jws,
  key: Parameters<typeof flattenedVerify>[1] & (object | Uint8Array),
  algorithms: readonly string[],
): Promise<boolean> {
  try {
    await flattenedVerify(jws, key, { algorithms: [...algorithms] })
    return true
  } catch (error) {
    if (error instanceof errors.JOSEError || error instanceof TypeError) return false
    throw error
  }
}
