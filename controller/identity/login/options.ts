import * as z from 'zod'

/** How the embedded identity service checks logins, and how often they may fail. */
export const loginOptions = {
  max_tokens_per_user: z.coerce
    .number()
    .int()
    .min(10)
    .max(1_000_000)
    .default(5000)
    .describe(
      'Maximum number of tokens per user, and separately of its application credentials. At the limit, expired tokens are deleted first; if all are valid, logins get 429',
    ),
  password_hash_rounds: z.coerce
    .number()
    .int()
    .min(14)
    .max(20)
    .default(17)
    .describe(
      'Cost of a password hash: the base-2 logarithm of scrypt’s N (r=8, p=1). OWASP recommends 17, which takes 128 MiB and half a second; cheaper hashes are upgraded when their users log in',
    ),
  password_hash_memory: z.coerce
    .number()
    .int()
    .min(16)
    .max(1_048_576)
    .default(512)
    .describe(
      'MiB for concurrent password hashes; at least two always run at once, one of them for sites with failed logins',
    ),
  lockout_failure_attempts: z.coerce
    .number()
    .int()
    .min(1)
    .max(1_000_000)
    .default(5)
    .describe('Consecutive failed logins of one account from one address before further ones must pause (429)'),
  lockout_duration: z.coerce
    .number()
    .min(1)
    .max(86_400)
    .default(300)
    .describe('Longest pause in seconds; the first pause is one second, and each further failure doubles it'),
}
