import { z } from 'zod'

/** Text that is not blank, of at most `most` characters. */
export const name = (most: number) => z.string().max(most).regex(/\S/, 'must not be blank')

export const id = z.string().min(1).max(255)
export const description = z.string().max(65_535)
export const enabled = z.boolean()

/** Options of Keystone and of deployments; only `immutable` means something to us. */
export const options = z.looseObject({ immutable: z.boolean().nullable().optional() })

export const tags = z
  .array(
    z
      .string()
      .min(1)
      .max(255)
      .regex(/^[^,/]+$/, 'must hold no comma and no slash'),
  )
  .max(80)
