import * as z from 'zod'
import { seconds } from '../options/values.js'

/** Settings of the worker. */
export const workerOptions = z
  .strictObject({
    concurrency: z.coerce
      .number()
      .int()
      .min(1)
      .max(100)
      .default(12)
      .describe('Number of load balancers that one worker converges at once; one project gets at most half of them'),
    sweep_interval: seconds.default(2),
  })
  .prefault({})

export type WorkerSettings = z.output<typeof workerOptions>
