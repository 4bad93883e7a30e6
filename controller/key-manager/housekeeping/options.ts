import { z } from 'zod'
import { seconds } from '../../options/values.js'

/** The options of the key manager's housekeeping. */
export const housekeepingOptions = z
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
  .prefault({})

export type HousekeepingSettings = z.output<typeof housekeepingOptions>
