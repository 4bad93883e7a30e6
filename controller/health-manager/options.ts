import * as z from 'zod'
import { host, port, seconds } from '../options/values.js'

/** Settings of the health manager. */
export const healthManagerOptions = z
  .strictObject({
    host: host
      .optional()
      .describe('Address to listen on; defaults to the controller’s address on the management network'),
    port: port.default(5555),
    beat_interval: seconds.default(3),
    stale_after: seconds
      .default(15)
      .describe('Seconds without heartbeats after which the load balancer of an amphora is rechecked'),
    replace_after: seconds
      .default(60)
      .describe('Seconds for which an amphora that sends heartbeats may be unreachable before it is replaced'),
    restart_window: seconds.default(300).describe('Length in seconds of the window for the restart limits'),
    project_restart_limit: z.coerce
      .number()
      .int()
      .min(0)
      .default(3)
      .describe(
        'Running but unreachable amphorae of one project to restart or replace within the window, or a fifth of its amphorae if that is more',
      ),
    restart_limit: z.coerce.number().int().min(0).default(10).describe('The same limit for all projects together'),
  })
  .prefault({})

export type HealthManagerSettings = z.output<typeof healthManagerOptions>
