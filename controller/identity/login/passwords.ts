import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto'
import { computeOnThread, type ThreadPriority } from '../../process/compute-thread.js'

/** OWASP recommends N = 2^17, r = 8, p = 1 for scrypt: 128 MiB and about half a second of a core per guess. */
const BLOCK = { r: 8, p: 1 } as const
const KEY_BYTES = 32

/** The memory that one hash takes, in MiB. @param rounds the base-2 logarithm of scrypt's N */
export const hashMebibytes = (rounds: number): number => Math.ceil((128 * 2 ** rounds * BLOCK.r) / 1024 ** 2)

/** Hashes a password or another secret chosen by people. @returns `scrypt$N$r$p$salt$key`, salt and key in base64url */
export function hashPassword(password: string, rounds: number): Promise<string> {
  return hashWith(derive, password, randomBytes(16), rounds)
}

async function hashWith(deriveKey: Derive, password: string, salt: Buffer, rounds: number): Promise<string> {
  return format(salt, await deriveKey(password, salt, { N: 2 ** rounds, ...BLOCK }), rounds)
}

export type Verification = {
  matches: boolean
  /** The hash at the current cost, if the stored one is cheaper. It keeps the salt: see `saltOf`. */
  upgraded: string | null
}

/**
 * Compares a password with a stored hash. Without a hash (an unknown user) it takes as long and does not match. With an
 * older hash, a wrong password takes as long as the right one. So the response time does not reveal whether an account
 * exists.
 * @param priority of the computing thread when processors are short; null for the priority of requests
 */
export async function verifyPassword(
  password: string,
  hash: string | null | undefined,
  rounds: number,
  priority: ThreadPriority | null = null,
): Promise<Verification> {
  const deriveKey = priority === null ? derive : deriveOnThread(priority)
  const [, N, r, p, salt, key] = (hash ?? decoy(rounds)).split('$')
  if (N === undefined || r === undefined || p === undefined || salt === undefined || key === undefined) {
    return { matches: false, upgraded: null }
  }
  const expected = Buffer.from(key, 'base64url')
  const saltBytes = Buffer.from(salt, 'base64url')
  const derived = await deriveKey(password, saltBytes, { N: Number(N), r: Number(r), p: Number(p) })
  const matches = timingSafeEqual(derived, expected) && typeof hash === 'string'
  const upgraded = Number(N) < 2 ** rounds ? await hashWith(deriveKey, password, saltBytes, rounds) : null
  return { matches, upgraded: matches ? upgraded : null }
}

/** The salt: an upgrade of the hash keeps it, and every new password changes it. */
export const saltOf = (hash: string | null | undefined): string | undefined => hash?.split('$')[4]

/** A hash of no known password. */
const decoy = (rounds: number) => format(randomBytes(16), randomBytes(KEY_BYTES), rounds)

function format(salt: Buffer, key: Uint8Array, rounds: number): string {
  const parts = [salt, key].map(bytes => Buffer.from(bytes).toString('base64url'))
  return ['scrypt', 2 ** rounds, BLOCK.r, BLOCK.p, ...parts].join('$')
}

type Derive = (password: string, salt: Buffer, cost: { N: number; r: number; p: number }) => Promise<Uint8Array>

const withMemory = (cost: { N: number; r: number; p: number }): ScryptOptions => ({
  ...cost,
  maxmem: 256 * cost.N * cost.r,
})

const derive: Derive = (password, salt, cost) =>
  new Promise((resolve, reject) => {
    scrypt(password, salt, KEY_BYTES, withMemory(cost), (error, key) => (error === null ? resolve(key) : reject(error)))
  })

const deriveOnThread =
  (priority: ThreadPriority): Derive =>
  (password, salt, cost) =>
    computeOnThread(
      // Copy the salt: a small Buffer is a slice of a larger one, which would be sent along with other users' secrets.
      { kind: 'scrypt', password, salt: new Uint8Array(salt), bytes: KEY_BYTES, cost: withMemory(cost) },
      priority,
    )
