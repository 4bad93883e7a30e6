import * as z from 'zod'
import { certificateFacts } from '../certificates/barbican/checker/job.js'

/** What a reference leads to, or why it cannot be used. */
export const foundSchema = z.object({
  ref: z.string(),
  kind: z.enum(['certificate', 'authority', 'revocation list']),
  digest: z.string().optional(),
  facts: certificateFacts.nullish(),
  reason: z.string().optional(),
})

export type Found = z.output<typeof foundSchema>
