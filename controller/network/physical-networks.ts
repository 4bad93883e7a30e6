import * as z from 'zod'

/** What each physical network leads to: an interface or a bridge of the host. */
export type PhysicalNetworks = Readonly<Record<string, { interface: string }>>

const NAME = /^[A-Za-z0-9][\w.-]{0,63}$/
/** At most 15 characters, as the kernel has it. The characters are those that every tool takes as they are. */
const INTERFACE = /^(?!\.{1,2}$)[\w.-]{1,15}$/

const entry = z.union([z.string(), z.strictObject({ interface: z.string() }).transform(one => one.interface)])

/** `network.physical_networks`: a group of `name: interface`, or a text `name:interface,name:interface`. */
export const physicalNetworks = z
  .unknown()
  .transform((value, context): PhysicalNetworks => {
    const entries = typeof value === 'string' ? entriesOf(value) : z.record(z.string(), entry).safeParse(value).data
    const invalid = Object.entries(entries ?? {}).some(([name, to]) => !NAME.test(name) || !INTERFACE.test(to))
    if (entries === undefined || invalid) {
      context.addIssue({
        code: 'custom',
        message: 'names, each with an interface of this machine, such as lan: eth0 (in a variable lan:eth0)',
      })
      return z.NEVER
    }
    return Object.fromEntries(Object.entries(entries).map(([name, to]) => [name, { interface: to }]))
  })
  .default({})

/** @returns undefined if a part has another form, or a name comes twice */
function entriesOf(text: string): Record<string, string> | undefined {
  const parts = text.split(',').flatMap(part => (part.trim() === '' ? [] : [part.trim().split(':')]))
  const pairs = parts.flatMap(([name, to, ...rest]) =>
    name === undefined || to === undefined || rest.length > 0 ? [] : [[name, to] as const],
  )
  const entries = Object.fromEntries(pairs)
  return Object.keys(entries).length === parts.length ? entries : undefined
}
