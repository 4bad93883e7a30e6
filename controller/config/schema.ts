import { z } from 'zod'
import { checkExternalIdentity, externalIdentityOptions } from './options/external-identity-options.js'
import { keyManagerOptions } from './options/key-manager-options.js'
import { keyManagerWorkerOptions } from './options/key-manager-worker-options.js'
import { keystoneNotifications } from './options/keystone-notifications.js'
import { loadBalancerAccess, trustedProxies } from './options/load-balancer-access.js'
import { loadBalancerKeyManager } from './options/load-balancer-key-manager.js'
import { loadBalancerOptions } from './options/load-balancer-options.js'
import { loginOptions } from './options/login-options.js'
import { loadBalancerQuota, networkQuota, sharedAddresses } from './options/quotas.js'

const port = z.coerce.number().int().min(1).max(65535)
const seconds = z.coerce.number().positive()
const host = z.string().min(1)
const postgresUrl = z.string().regex(/^postgres(ql)?:\/\//, 'must be a postgres:// URL')

/**
 * Every setting there is, with its default. The one source of krater.yaml's validation, of the environment variables
 * (KRATER_ + the path in capitals: `network.driver` is KRATER_NETWORK_DRIVER) and of the documentation.
 */
export const configurationSchema = z.strictObject({
  region: z.string().min(1).default('RegionOne').describe('Region name in the service catalogue'),
  log_level: z.enum(['trace', 'debug', 'info', 'warn', 'error']).default('info'),
  database: z
    .strictObject({
      url: postgresUrl
        .optional()
        .describe(
          'Administrator of the database, for `krater db migrate`; `krater up` fills it in for its own cluster',
        ),
      identity: postgresUrl.optional(),
      network: postgresUrl.optional(),
      load_balancer: postgresUrl.optional(),
      key_manager: postgresUrl.optional(),
    })
    .prefault({})
    .describe('One URL per service, each with a role of its own'),
  api: z
    .strictObject({
      max_connections: z.coerce
        .number()
        .int()
        .min(16)
        .max(1_000_000)
        .default(4096)
        .describe('Most connections of each API at a time; fewer where the process may not have as many open files'),
      max_connections_per_source: z.coerce
        .number()
        .int()
        .min(1)
        .max(1_000_000)
        .default(512)
        .describe(
          'Most of these from one address (IPv6: one /64), trusted proxies excepted; beyond, the oldest idle one is closed',
        ),
    })
    .prefault({})
    .describe('What all APIs have in common'),
  identity: z
    .strictObject({
      host: host.default('127.0.0.1'),
      port: port.default(5000),
      public_url: z.url().optional().describe('What the catalogue says when it is not http://host:port/v3'),
      trusted_proxies: trustedProxies,
      token_expiration: seconds.default(3600),
      ...loginOptions,
      ...externalIdentityOptions,
    })
    .superRefine(checkExternalIdentity)
    .prefault({}),
  load_balancer: z
    .strictObject({
      host: host.default('127.0.0.1'),
      port: port.default(9876),
      public_url: z.url().optional(),
      topology: z.enum(['SINGLE', 'ACTIVE_STANDBY']).default('SINGLE'),
      default_provider: z.string().default('amphora'),
      quota: loadBalancerQuota,
      ...loadBalancerOptions,
      ...loadBalancerAccess,
      ...loadBalancerKeyManager,
    })
    .prefault({}),
  key_manager: z
    .strictObject({
      host: host.default('127.0.0.1'),
      port: port.default(9311),
      public_url: z.url().optional().describe('Where clients reach the API: the base of every reference in answers'),
      ...keyManagerOptions,
      ...keyManagerWorkerOptions,
      keystone_notifications: keystoneNotifications,
    })
    .prefault({}),
  network: z
    .strictObject({
      host: host.default('127.0.0.1'),
      port: port.default(9696),
      public_url: z.url().optional(),
      trusted_proxies: trustedProxies,
      driver: z.enum(['local', 'noop']).default('local'),
      cidr: z
        .string()
        .optional()
        .describe('The IPv4 /16 from which the first networks are cut; chosen free at first start'),
      quota: networkQuota,
      shared_addresses: sharedAddresses,
    })
    .prefault({}),
  compute: z
    .strictObject({
      driver: z.enum(['namespace', 'noop']).default('namespace'),
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
      amphora_memory: z.coerce
        .number()
        .int()
        .min(256)
        .default(2048)
        .describe('Most MiB of memory that one amphora may use, where the host has control groups'),
      amphora_processors: z.coerce
        .number()
        .min(0.1)
        .default(2)
        .describe('Most processors that one amphora may keep busy, such as 0.5, where the host has control groups'),
      amphora_processes: z.coerce
        .number()
        .int()
        .min(256)
        .default(2048)
        .describe('Most processes and threads of one amphora, where the host has control groups'),
      first_account: z.coerce
        .number()
        .int()
        .min(65_536)
        .max(2_147_000_000)
        .default(1_900_000_000)
        .describe('First of the numbers of users and groups that amphorae have on the host; nobody else may have them'),
      accounts: z.coerce
        .number()
        .int()
        .min(8)
        .max(400_000)
        .default(65_536)
        .describe('How many numbers of users and groups there are for amphorae; each takes eight'),
    })
    .prefault({}),
  worker: z
    .strictObject({
      concurrency: z.coerce
        .number()
        .int()
        .min(1)
        .max(100)
        .default(12)
        .describe('Load balancers converged at once by one worker; one project gets at most half of them'),
      sweep_interval: seconds.default(2),
    })
    .prefault({}),
  housekeeping: z
    .strictObject({
      sweep_interval: seconds
        .default(30)
        .describe('Between two looks for machines and ports that nobody owns; what two looks in a row find is removed'),
    })
    .prefault({}),
  health_manager: z
    .strictObject({
      host: host.optional().describe('Address to listen on; the management network’s own address when not given'),
      port: port.default(5555),
      beat_interval: seconds.default(3),
      stale_after: seconds.default(15).describe('Silence after which an amphora is looked at'),
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
    .prefault({}),
  keys: z
    .strictObject({
      amphora_master: z
        .string()
        .optional()
        .describe('File with 32 random bytes in hexadecimal: amphora host keys and heartbeat keys are derived from it'),
      controller_ssh: z.string().optional().describe('File with the ed25519 private key that reaches the agents'),
      operator_ssh: z
        .string()
        .optional()
        .describe('File with the ed25519 private key that gives operators a shell on amphorae'),
    })
    .prefault({}),
})

export type Configuration = z.output<typeof configurationSchema>
