import * as z from 'zod'
import { computeDriver, computeDrivers } from './drivers.js'

const NAME = /^[\w.-]{1,64}$/

const driver = z.enum(computeDrivers.filter(({ runsMachines }) => runsMachines).map(({ name }) => name))

const flavor = z
  .strictObject({
    driver,
    memory: z.int().min(64).max(1_048_576).optional(),
    cores: z.number().min(0.1).max(1024).optional(),
    image_tag: z.string().regex(NAME, 'a tag of letters, digits, dots, hyphens and underscores').optional(),
    warm: z.int().min(0).max(100).optional(),
  })
  .superRefine(({ driver, memory, cores }, context) => {
    const problem = computeDriver(driver).sizeProblem?.({ memory, cores }) ?? null
    if (problem !== null) context.addIssue({ code: 'custom', message: problem })
  })

const zone = z.strictObject({ driver: driver.optional() })

/** `compute.flavors`: what the machines of a flavor are, by its name. */
export const flavorTable = tableOf(flavor, 'a flavor with its driver, memory and cores')

/** `compute.zones`: the driver of a zone's machines, if it has one, by its name. */
export const zoneTable = tableOf(zone, 'a zone, {} or with its driver')

/** A table of entries by name; in the environment, JSON. @param what one entry, for the error message */
function tableOf<Entry extends z.ZodType>(entry: Entry, what: string) {
  return z
    .unknown()
    .transform((value, context): Readonly<Record<string, z.output<Entry>>> => {
      const parsed = z.record(z.string(), entry).safeParse(typeof value === 'string' ? jsonOf(value) : value)
      const wrongName = Object.keys(parsed.data ?? {}).find(name => !NAME.test(name))
      if (parsed.success && wrongName === undefined) return parsed.data
      const [issue] = parsed.error?.issues ?? []
      const detail =
        issue === undefined
          ? `the name ${wrongName} must have letters, digits, dots, hyphens and underscores only`
          : [issue.path.map(String).join('.'), issue.message].filter(part => part !== '').join(': ')
      context.addIssue({ code: 'custom', message: `a table of names, each with ${what} (${detail})` })
      return z.NEVER
    })
    .default({})
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
