import { z } from 'zod'
import { host, port, seconds } from '../options/values.js'

/** The options of the health manager. */
export const healthManagerOptions = z
  .strictObject({
    host: host.optional().describe('Address to listen on; the management network’s own address when not given'),
    port: port.default(5555),
    beat_interval: seconds.default(3),
    stale_after: seconds.default(15).describe('Silence after which the load balancer of an amphora is rechecked'),
    replace_after: seconds
      .default(60)
      .describe('How long an amphora that is heard may stay unreachable before another takes its place'),
    restart_window: seconds.default(300).describe('Seconds for which the restart limits count'),
    project_restart_limit: z.coerce
      .number()
      .int()
      .min(0)
      .default(3)
      .describe(
        'Most running amphorae of one project that are restarted or replaced within the window because they cannot be reached; a fifth of its amphorae when that is more',
      ),
    restart_limit: z.coerce.number().int().min(0).default(10).describe('The same for all projects together'),
  })
  .prefault({})

export type HealthManagerSettings = z.output<typeof healthManagerOptions>
