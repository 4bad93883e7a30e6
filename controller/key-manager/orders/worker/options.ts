import * as z from 'zod'
import { seconds } from '../../../options/values.js'

/** The settings of the key manager's worker. */
export const orderWorkerOptions = z
  .strictObject({
    concurrency: z.coerce
      .number()
      .int()
      .min(1)
      .max(100)
      .default(8)
      .describe('Concurrent orders per worker; RSA and DSA key pairs are limited to the number of processors'),
    sweep_interval: seconds.default(2),
  })
  .prefault({})

export type OrderWorkerSettings = z.output<typeof orderWorkerOptions>
