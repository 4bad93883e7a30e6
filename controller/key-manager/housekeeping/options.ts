import * as z from 'zod'
import { seconds } from '../../options/values.js'

/** The options of the key manager's housekeeping. */
export const housekeepingOptions = z
  .strictObject({
    interval: seconds.default(300).describe('Between two rounds that delete expired secrets and purge old tombstones'),
    min_days: z.coerce
      .number()
      .int()
      .min(0)
      .max(36_500)
      .default(90)
      .describe('Days to keep tombstones of deleted objects; their ciphertext is removed at once'),
  })
  .prefault({})

export type HousekeepingSettings = z.output<typeof housekeepingOptions>
