import { z } from 'zod'
import { seconds } from '../../../options/values.js'

/** The options of the key manager's worker. */
export const orderWorkerOptions = z
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
  .prefault({})

export type OrderWorkerSettings = z.output<typeof orderWorkerOptions>
