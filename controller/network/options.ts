import * as z from 'zod'
import { apiAddress, defaultQuota, flag, isNetwork, listOf } from '../options/values.js'
import { networkDrivers } from './drivers.js'
import { physicalNetworks } from './physical-networks.js'

const quota = z
  .strictObject({
    network: defaultQuota('networks', 100),
    subnet: defaultQuota('subnets', 100),
    port: defaultQuota('ports made by users', 500),
    router: defaultQuota('routers', 10),
    floatingip: defaultQuota('floating IPs', 50),
    security_group: defaultQuota('security groups', 100),
    security_group_rule: defaultQuota('rules of security groups', 1000),
  })
  .prefault({})

const sharedAddresses = z
  .strictObject({
    reserve: z.coerce
      .number()
      .int()
      .min(0)
      .max(65_536)
      .default(64)
      .describe(
        'Addresses reserved for amphorae at the end of the largest pool of each subnet of a shared network, so that failovers find free ones; at most an eighth of that pool',
      ),
    project_share: z.coerce
      .number()
      .int()
      .min(1)
      .max(100)
      .default(25)
      .describe(
        'Maximum percentage of the addresses of a shared network’s subnet that the ports and VIPs of one project may hold',
      ),
  })
  .prefault({})

const { host, port, trusted_proxies } = apiAddress(9696)

/** Settings of the network service. */
export const networkOptions = z
  .strictObject({
    host,
    port,
    public_url: z.url().optional(),
    trusted_proxies,
    driver: z.enum(networkDrivers.map(({ name }) => name)).default(networkDrivers[0].name),
    cidr: z
      .string()
      .optional()
      .describe('IPv4 /16 to carve the built-in networks from; by default, the first start picks a free one'),
    physical_networks: physicalNetworks.describe(
      'Interfaces or bridges of this machine on which administrators make networks, by name: `lan: eth0`; in the environment lan:eth0,storage:br1',
    ),
    outside: flag
      .optional()
      .describe(
        'Whether amphorae and others on the network public reach what this machine reaches, by its addresses: members elsewhere, in containers, in the Internet. Turns forwarding on; by default they reach nothing, and `krater up` asks',
      ),
    outside_denied: listOf(z.string().refine(isNetwork, { error: 'an address, or a network such as 10.0.0.0/8' }))
      .default([])
      .describe(
        'Addresses and networks that they do not reach even so; link-local ones, such as metadata services, never',
      ),
    quota,
    shared_addresses: sharedAddresses,
  })
  .prefault({})

export type NetworkSettings = z.output<typeof networkOptions>
