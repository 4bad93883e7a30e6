import { z } from 'zod'

const seconds = z.coerce.number().positive()

/** What an operator may set of the key manager's worker and of its housekeeping. */
export const keyManagerWorkerOptions = {
  worker: z
    .strictObject({
      concurrency: z.coerce
        .number()
        .int()
        .min(1)
        .max(100)
        .default(8)
        .describe('Orders carried out at once by one worker; RSA and DSA key pairs as many as there are processors'),
      sweep_interval: seconds.default(2),
    })
    .prefault({}),
  housekeeping: z
    .strictObject({
      interval: seconds
        .default(300)
        .describe('Between two rounds that end what has expired and purge what was deleted long ago'),
      min_days: z.coerce
        .number()
        .int()
        .min(0)
        .max(36_500)
        .default(90)
        .describe('How long the remains of deleted objects are kept; what was secret of them goes at once'),
    })
    .prefault({}),
}
