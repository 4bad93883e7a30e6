import { z } from 'zod'

/** Most objects of one kind in a project for which no other limit was set; -1 is unlimited. */
const most = (objects: string, byDefault: number) =>
  z.coerce
    .number()
    .int()
    .min(-1)
    .max(2_000_000_000)
    .default(byDefault)
    .describe(`Most ${objects} of a project for which no other limit was set; -1 is unlimited`)

export const loadBalancerQuota = z
  .strictObject({
    loadbalancer: most('load balancers', 100),
    listener: most('listeners', 500),
    pool: most('pools', 500),
    member: most('members', 5_000),
    healthmonitor: most('health monitors', 500),
    l7policy: most('L7 policies', 1_000),
    l7rule: most('L7 rules', 5_000),
  })
  .prefault({})

export const networkQuota = z
  .strictObject({
    network: most('networks', 100),
    subnet: most('subnets', 100),
    port: most('ports made by users', 500),
  })
  .prefault({})

export const sharedAddresses = z
  .strictObject({
    reserve: z.coerce
      .number()
      .int()
      .min(0)
      .max(65_536)
      .default(64)
      .describe(
        'Addresses at the end of the largest pool of each subnet of a shared network that only amphorae get, so that failovers find some; at most an eighth of that pool',
      ),
    project_share: z.coerce
      .number()
      .int()
      .min(1)
      .max(100)
      .default(25)
      .describe('Most addresses of a subnet of a shared network, in percent, for the ports and VIPs of one project'),
  })
  .prefault({})
