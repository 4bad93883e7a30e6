import * as z from 'zod'
import { parseOvsdbAddresses } from '../ovsdb/address.js'

const servers = z.string().refine(text => parseOvsdbAddresses(text) !== null, {
  error: 'addresses such as ssl:192.0.2.1:6641,ssl:192.0.2.2:6641 or unix:/run/ovn/ovnnb_db.sock',
})
const file = z.string().refine(path => path.startsWith('/'), { error: 'an absolute path' })

/** Settings of an OVN that stands already. */
export const ovnOptions = z
  .strictObject({
    northbound: servers
      .optional()
      .describe(
        'Servers of the northbound database of an OVN that stands; all those of a cluster. By default, Krater runs an OVN of its own',
      ),
    southbound: servers.optional().describe('Servers of its southbound database'),
    switch: servers
      .default('unix:/run/openvswitch/db.sock')
      .describe('Database of this host’s Open vSwitch, which must be a chassis of that OVN'),
    certificate_file: file.optional().describe('PEM file with Krater’s certificate for these databases'),
    key_file: file.optional().describe('PEM file with its key'),
    ca_file: file.optional().describe('PEM file with the authorities of their servers'),
  })
  .refine(({ northbound, southbound }) => (northbound === undefined) === (southbound === undefined), {
    error: 'northbound and southbound belong together',
    path: ['southbound'],
  })
  .refine(
    settings =>
      ![settings.northbound, settings.southbound, settings.switch].some(text => text?.includes('ssl:')) ||
      [settings.certificate_file, settings.key_file, settings.ca_file].every(path => path !== undefined),
    { error: 'ssl: needs certificate_file, key_file and ca_file', path: ['certificate_file'] },
  )
  .prefault({})

export type OvnSettings = z.infer<typeof ovnOptions>
