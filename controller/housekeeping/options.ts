import { z } from 'zod'
import { seconds } from '../options/values.js'

/** The options of housekeeping. */
export const housekeepingOptions = z
  .strictObject({
    sweep_interval: seconds
      .default(30)
      .describe(
        'Between two searches for machines and ports that nobody owns; what two searches in a row find is removed',
      ),
  })
  .prefault({})

export type HousekeepingSettings = z.output<typeof housekeepingOptions>
