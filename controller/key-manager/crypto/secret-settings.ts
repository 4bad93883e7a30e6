import * as z from 'zod'

const isArgv = (value: unknown): value is string[] =>
  Array.isArray(value) && value.length > 0 && value.every(word => typeof word === 'string' && word !== '')

/** A program and its arguments, run without a shell. In the environment it is JSON. */
export const argvSetting = z.preprocess(
  value => {
    if (typeof value !== 'string') return value
    try {
      return JSON.parse(value)
    } catch {
      return value
    }
  },
  z.custom<string[]>(isArgv, 'a list of words: the program, then its arguments'),
)

export const path = z.string().min(1)
export const name = z.string().min(1).max(200)
export const seconds = z.coerce.number().positive().max(86_400)

/** Settings of a secret's three possible sources. For the prefix `pin`: pin_file, pin_variable and pin_command. */
export function secretSourceSettings<Prefix extends string>(prefix: Prefix, what: string, fallback: string) {
  const settings = {
    [`${prefix}_file`]: path.optional().describe(`File with ${what}${fallback}`),
    [`${prefix}_variable`]: name.optional().describe(`Name of an environment variable with ${what}, instead of a file`),
    [`${prefix}_command`]: argvSetting
      .optional()
      .describe(`Program and arguments that print ${what}, instead of a file; run without a shell`),
  }
  return settings as Record<`${Prefix}_file` | `${Prefix}_variable`, z.ZodOptional<z.ZodString>> &
    Record<`${Prefix}_command`, z.ZodOptional<typeof argvSetting>>
}

/** Whether at most one source is set. */
export const atMostOne = (...given: unknown[]): boolean => given.filter(value => value !== undefined).length <= 1
