import * as z from 'zod'
import { computeDrivers } from './drivers.js'
import { flavorTable, zoneTable } from './flavor-options.js'

const driverOptions: Readonly<Record<string, z.ZodType>> = Object.assign(
  {},
  ...computeDrivers.map(({ options }) => options),
)

/** Settings for amphora machines, with those of every driver. */
export const computeOptions = z
  .strictObject({
    driver: z.enum(computeDrivers.map(({ name }) => name)).default(computeDrivers[0].name),
    flavors: flavorTable.describe(
      'Compute flavors besides those named like the drivers: what the compute_flavor of a flavor may name, such as large: {driver: namespace, memory: 4096, cores: 4}; memory in MiB, image_tag and warm (amphorae kept ready) if wanted; in the environment as JSON',
    ),
    zones: zoneTable.describe(
      'Compute zones besides local: what the compute_zone of an availability zone may name, such as machines: {driver: namespace}; without a driver, of every driver; in the environment as JSON',
    ),
    warm_amphorae: z.coerce
      .number()
      .int()
      .min(0)
      .max(100)
      .default(1)
      .describe('Number of amphorae kept ready for new load balancers without a compute flavor'),
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
