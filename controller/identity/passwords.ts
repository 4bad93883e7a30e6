import { randomBytes, type ScryptOptions, scrypt, timingSafeEqual } from 'node:crypto'
import { ApiError } from '../http/errors.js'

// 16 MiB and some 50 ms of one core per guess.
const COST = { N: 2 ** 14, r: 8, p: 1 } as const
const KEY_BYTES = 32

/** Hashes a password or another secret that people choose. @returns `scrypt$N$r$p$salt$key`, salt and key in base64url */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16)
  return format(salt, await derive(password, salt, COST))
}

/**
 * Compares a password with a stored hash. Without a hash (an unknown user) it takes as long and is false, so that the
 * time of an answer does not tell which accounts exist.
 */
export async function verifyPassword(password: string, hash: string | null | undefined): Promise<boolean> {
  const [, N, r, p, salt, key] = (hash ?? DECOY).split('$')
  if (N === undefined || r === undefined || p === undefined || salt === undefined || key === undefined) return false
  const expected = Buffer.from(key, 'base64url')
  const derived = await derive(password, Buffer.from(salt, 'base64url'), { N: Number(N), r: Number(r), p: Number(p) })
  return timingSafeEqual(derived, expected) && typeof hash === 'string'
}

/** In the form of a hash; of nothing that anybody knows. */
const DECOY = format(randomBytes(16), randomBytes(KEY_BYTES))

function format(salt: Buffer, key: Buffer): string {
  return ['scrypt', COST.N, COST.r, COST.p, salt.toString('base64url'), key.toString('base64url')].join('$')
}

/** Guesses that are worked on at once: the process and its few threads have other work as well. */
const AT_ONCE = 2
/** Who comes later is sent away, rather than made to wait behind a flood of guesses for minutes. */
const MOST_WAITING = 64

let running = 0
const waiting: (() => void)[] = []

/** @throws ApiError 503 when too many wait already */
async function derive(password: string, salt: Buffer, cost: ScryptOptions): Promise<Buffer> {
  if (running < AT_ONCE) running++
  else if (waiting.length < MOST_WAITING) await new Promise<void>(resolve => waiting.push(resolve))
  else throw new ApiError(503, 'Too many logins are waiting; try again in a few seconds.', { 'Retry-After': '5' })
  try {
    return await new Promise((resolve, reject) => {
      scrypt(password, salt, KEY_BYTES, cost, (error, key) => (error === null ? resolve(key) : reject(error)))
    })
  } finally {
    // The next one takes over this turn.
    const next = waiting.shift()
    if (next === undefined) running--
    else next()
  }
}
