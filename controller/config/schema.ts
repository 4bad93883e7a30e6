import * as z from 'zod'
import { computeOptions } from '../compute/options.js'
import { databaseOptions } from '../database/options.js'
import { healthManagerOptions } from '../health-manager/options.js'
import { hostOptions } from '../hosts/options.js'
import { housekeepingOptions } from '../housekeeping/options.js'
import { httpOptions } from '../http/options.js'
import { identityOptions } from '../identity/options.js'
import { keyManagerOptions } from '../key-manager/options.js'
import { loadBalancerOptions } from '../load-balancer/options.js'
import { networkOptions } from '../network/options.js'
import { ovnOptions } from '../ovn/options.js'
import { amphoraKeyOptions } from '../provider/amphora/options.js'
import { workerOptions } from '../worker/options.js'

/**
 * Every setting with its default. Each group belongs to the service that uses it. This schema is the only
 * source for the validation of krater.yaml, for the environment variables (KRATER_ and the path in capitals:
 * `network.driver` is KRATER_NETWORK_DRIVER) and for the output of `krater settings`.
 */
export const configurationSchema = z.strictObject({
  region: z.string().min(1).default('RegionOne').describe('Region name in the service catalogue'),
  log_level: z.enum(['trace', 'debug', 'info', 'warn', 'error']).default('info'),
  host: hostOptions,
  database: databaseOptions,
  api: httpOptions,
  identity: identityOptions,
  load_balancer: loadBalancerOptions,
  key_manager: keyManagerOptions,
  network: networkOptions,
  ovn: ovnOptions,
  compute: computeOptions,
  worker: workerOptions,
  housekeeping: housekeepingOptions,
  health_manager: healthManagerOptions,
  keys: amphoraKeyOptions,
})

export type Configuration = z.output<typeof configurationSchema>
