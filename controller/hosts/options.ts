import * as z from 'zod'

const LOOPBACK_OR_ANY = /^(127\.|0\.0\.0\.0$|::1?$)/

/** An address at which other machines can reach a host. */
export const hostAddress = z
  .union([z.ipv4(), z.ipv6()], { error: 'an IPv4 or IPv6 address' })
  .refine(address => !LOOPBACK_OR_ANY.test(address), { error: 'an address that other machines can reach' })

/** The name of a host, as machines are called. */
export const hostName = z.string().regex(/^[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?$/, {
  error: 'letters, digits, dots and hyphens, at most 63 characters',
})

/** Settings of this controller host. */
export const hostOptions = z
  .strictObject({
    name: hostName.optional().describe('Name of this controller host; defaults to the name of the machine'),
    address: hostAddress
      .optional()
      .describe(
        'Address at which the other controller hosts, and amphorae on other machines, reach this one; not needed on a single machine',
      ),
  })
  .prefault({})

export type HostSettings = z.output<typeof hostOptions>
