import { z } from 'zod'
import { seconds } from '../options/values.js'

/** Settings of housekeeping. */
export const housekeepingOptions = z
  .strictObject({
    sweep_interval: seconds
      .default(30)
      .describe(
        'Seconds between searches for orphaned machines and ports; those found by two searches in a row are removed',
      ),
  })
  .prefault({})

export type HousekeepingSettings = z.output<typeof housekeepingOptions>
