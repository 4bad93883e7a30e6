import { z } from 'zod'
import { seconds } from '../options/values.js'

/** The options of the worker. */
export const workerOptions = z
  .strictObject({
    concurrency: z.coerce
      .number()
      .int()
      .min(1)
      .max(100)
      .default(12)
      .describe('Load balancers converged at once by one worker; one project gets at most half of them'),
    sweep_interval: seconds.default(2),
  })
  .prefault({})

export type WorkerSettings = z.output<typeof workerOptions>
