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
    agent_upgrades: z
      .enum(['automatic', 'manual'])
      .default('automatic')
      .describe(
        'Whether agents of amphorae are upgraded in place, one after another, when the controller brings another one; `manual` leaves that to `krater amphora upgrade`',
      ),
  })
  .prefault({})

export type HousekeepingSettings = z.output<typeof housekeepingOptions>
