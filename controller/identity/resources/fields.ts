import * as z from 'zod'

/** Non-blank text of at most `max` characters. */
export const name = (max: number) => z.string().max(max).regex(/\S/, 'must not be blank')

export const id = z.string().min(1).max(255)
export const description = z.string().max(65_535)
export const enabled = z.boolean()

/** Options of Keystone and of deployments. Krater itself uses only `immutable`. */
export const options = z.looseObject({ immutable: z.boolean().nullable().optional() })

export const tags = z
  .array(
    z
      .string()
      .trim()
      .min(1)
      .max(255)
      .regex(/^[^,/]+$/, 'must not contain commas or slashes'),
  )
  .max(80)
  .refine(tags => new Set(tags).size === tags.length, 'must not contain a tag twice')
