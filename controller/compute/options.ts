import { z } from 'zod'
import { computeDrivers } from './drivers.js'

const driverOptions: Readonly<Record<string, z.ZodType>> = Object.assign(
  {},
  ...computeDrivers.map(({ options }) => options),
)

/** The options of amphorae's machines, with those of every driver. */
export const computeOptions = z
  .strictObject({
    driver: z.enum(computeDrivers.map(({ name }) => name)).default(computeDrivers[0].name),
    warm_amphorae: z.coerce
      .number()
      .int()
      .min(0)
      .max(100)
      .default(1)
      .describe('Amphorae kept ready for the next load balancer'),
    old_workers: z.coerce
      .number()
      .int()
      .min(1)
      .max(1000)
      .default(50)
      .describe(
        'Most HAProxy processes of one amphora that keep the connections of a former configuration; the oldest ends when there are more',
      ),
    old_workers_memory: z.coerce
      .number()
      .int()
      .min(16)
      .default(512)
      .describe('Most MiB of memory that such processes of one amphora may have together'),
    ...driverOptions,
  })
  .prefault({})

export type ComputeSettings = z.output<typeof computeOptions>
