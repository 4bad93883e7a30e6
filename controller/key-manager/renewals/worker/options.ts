import * as z from 'zod'
import { seconds } from '../../../options/values.js'

/** The settings of certificate renewals, which the key manager's worker carries out. */
export const renewalOptions = z
  .strictObject({
    concurrency: z.coerce.number().int().min(1).max(100).default(4).describe('Concurrent renewals per worker'),
    sweep_interval: seconds.default(30),
  })
  .prefault({})
  .describe('Renewals of ordered certificates')

export type RenewalSettings = z.output<typeof renewalOptions>
