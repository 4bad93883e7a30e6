import * as z from 'zod'
import { seconds } from '../options/values.js'

/** Settings of housekeeping. */
export const housekeepingOptions = z
  .strictObject({
    sweep_interval: seconds
      .default(30)
      .describe(
        'Seconds between searches for orphaned machines and ports; those found by two searches in a row are removed',
      ),
    certificate_proof_interval: seconds
      .default(180)
      .describe('Seconds between two handshakes with a listener that show whether it serves the right certificate'),
  })
  .prefault({})

export type HousekeepingSettings = z.output<typeof housekeepingOptions>
