import { z } from 'zod'

const count = z.coerce.number().int().max(1_000_000)

/** What all APIs have in common. */
export const httpOptions = z
  .strictObject({
    max_connections: count
      .min(16)
      .default(4096)
      .describe('Most connections of each API at a time; fewer where the process may not have as many open files'),
    max_connections_per_source: count
      .min(1)
      .default(512)
      .describe(
        'Most of these from one address (IPv6: one /64), trusted proxies excepted; beyond, the oldest idle one is closed',
      ),
  })
  .prefault({})
  .describe('What all APIs have in common')
