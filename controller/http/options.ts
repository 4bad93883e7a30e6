import { z } from 'zod'

const count = z.coerce.number().int().max(1_000_000)

/** Settings common to all APIs. */
export const httpOptions = z
  .strictObject({
    max_connections: count
      .min(16)
      .default(4096)
      .describe('Maximum connections of each API; lower if the process may not open that many files'),
    max_connections_per_source: count
      .min(1)
      .default(512)
      .describe(
        'Maximum connections from one address (IPv6: one /64), except trusted proxies; beyond it, the oldest idle one is closed',
      ),
  })
  .prefault({})
  .describe('Settings common to all APIs')
