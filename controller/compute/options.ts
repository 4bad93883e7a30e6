import * as z from 'zod'
import { computeDrivers } from './drivers.js'

const driverOptions: Readonly<Record<string, z.ZodType>> = Object.assign(
  {},
  ...computeDrivers.map(({ options }) => options),
)

/** Settings for amphora machines, with those of every driver. */
export const computeOptions = z
  .strictObject({
    driver: z.enum(computeDrivers.map(({ name }) => name)).default(computeDrivers[0].name),
    warm_amphorae: z.coerce
      .number()
      .int()
      .min(0)
      .max(100)
      .default(1)
      .describe('Number of amphorae kept ready for new load balancers'),
    old_workers: z.coerce
      .number()
      .int()
      .min(1)
      .max(1000)
      .default(50)
      .describe(
        'Limit of HAProxy processes per amphora that only finish connections of earlier configurations; beyond it, the oldest is ended',
      ),
    old_workers_memory: z.coerce
      .number()
      .int()
      .min(16)
      .default(512)
      .describe('Limit in MiB of the memory of such processes per amphora'),
    ...driverOptions,
  })
  .prefault({})

export type ComputeSettings = z.output<typeof computeOptions>
