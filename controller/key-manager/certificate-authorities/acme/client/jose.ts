import { createPublicKey, type KeyObject } from 'node:crypto'
import { calculateJwkThumbprint, exportJWK, type FlattenedJWS, FlattenedSign, type JWK } from 'jose'

const encode = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value))

/** The public part of an account's key. */
export const jwkOf = (key: KeyObject): Promise<JWK> => exportJWK(createPublicKey(key))

/** RFC 7638. */
export const thumbprintOf = async (key: KeyObject): Promise<string> => calculateJwkThumbprint(await jwkOf(key))

/**
 * Signs with a key on P-256.
 * @param payload null for an empty one, which reads (POST-as-GET)
 */
export const signJws = (
  key: KeyObject,
  header: Readonly<Record<string, unknown>>,
  payload: unknown,
): Promise<FlattenedJWS> =>
  new FlattenedSign(payload === null ? new Uint8Array() : encode(payload))
    .setProtectedHeader({ alg: 'ES256', ...header })
    .sign(key)

/** The external account binding of RFC 8555, 7.3.4. @param hmacKey base64url */
export const bindAccount = async (
  key: KeyObject,
  url: string,
  { keyId, hmacKey }: { keyId: string; hmacKey: string },
): Promise<FlattenedJWS> =>
  new FlattenedSign(encode(await jwkOf(key)))
    .setProtectedHeader({ alg: 'HS256', kid: keyId, url })
    .sign(Buffer.from(hmacKey.trim(), 'base64url'))
