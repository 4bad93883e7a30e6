import { z } from 'zod'

/** How logins at our own identity service are checked, and how often they may fail. */
export const loginOptions = {
  max_tokens_per_user: z.coerce
    .number()
    .int()
    .min(10)
    .max(1_000_000)
    .default(5000)
    .describe(
      'Most tokens of a user, and as many again of its application credentials; at the limit ended ones go first, and while all are good logins are 429',
    ),
  password_hash_rounds: z.coerce
    .number()
    .int()
    .min(14)
    .max(20)
    .default(17)
    .describe(
      'Cost of a password hash: the logarithm of scrypt’s N (r=8, p=1). 17 is what OWASP advises and takes 128 MiB and half a second; older hashes are upgraded when their users log in',
    ),
  password_hash_memory: z.coerce
    .number()
    .int()
    .min(16)
    .max(1_048_576)
    .default(512)
    .describe('MiB for password hashes that are computed at once; at least two are, one for where logins have failed'),
  lockout_failure_attempts: z.coerce
    .number()
    .int()
    .min(1)
    .max(1_000_000)
    .default(5)
    .describe('Failed logins in a row, of one account from one address, after which it has to pause (429)'),
  lockout_duration: z.coerce
    .number()
    .min(1)
    .max(86_400)
    .default(300)
    .describe('Longest pause in seconds; the first is one second, and each further failure doubles it'),
}
