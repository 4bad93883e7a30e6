import { isIP } from 'node:net'
import * as z from 'zod'
import { selectsCiphers } from '../options/cipher-string.js'
import { apiAddress, defaultQuota, flag, listOf, port as portValue, serviceUrl } from '../options/values.js'

const address = z.string().refine(text => isIP(text) !== 0, { error: 'an IPv4 or IPv6 address' })

/** TLS versions that listeners and pools may use, oldest first. */
export const TLS_VERSIONS = ['SSLv3', 'TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3'] as const

/** Mozilla's intermediate profile, version 5.8, as OpenSSL writes it. */
export const MOZILLA_INTERMEDIATE = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':')

const cipherString = z.string().refine(selectsCiphers, { error: 'an OpenSSL cipher string that selects ciphers' })

/** Settings that allow, forbid or preset attributes of load balancing objects. */
const objectOptions = {
  allow_tls_terminated_listeners: flag.default(true).describe('Allow TERMINATED_HTTPS listeners'),
  allow_prometheus_listeners: flag.default(true).describe('Allow PROMETHEUS listeners'),
  allow_ping_health_monitors: flag.default(true).describe('Allow PING health monitors'),
  allow_vip_port_id: flag.default(true).describe('Allow vip_port_id for new load balancers'),
  allow_vip_network_id: flag.default(true).describe('Allow vip_network_id for new load balancers'),
  allow_vip_subnet_id: flag.default(true).describe('Allow vip_subnet_id for new load balancers'),
  valid_vip_networks: listOf(z.guid().toLowerCase())
    .default([])
    .describe('Ids of the networks that VIPs may use; all if empty'),
  denied_vip_networks: listOf(z.guid().toLowerCase()).default([]).describe('Ids of networks that VIPs may not use'),
  reserved_ips: listOf(address)
    .default(['169.254.169.254'])
    .describe('Addresses that members may not use, such as that of the metadata service'),
  host_member_ports: listOf(z.coerce.number().int().min(1).max(65535))
    .default([])
    .describe(
      'TCP ports of the controller’s host that members may use, at its address on the public network; tenants cannot reach any other',
    ),
  host_member_udp_ports: listOf(z.coerce.number().int().min(1).max(65535))
    .default([])
    .describe('UDP ports likewise; `krater network open` writes both settings'),
  log_requests: flag
    .default(false)
    .describe(
      'Log every request and TCP connection on amphorae, not only failed ones; takes effect with the next change of a load balancer',
    ),
  udp_connect_min_delay: z.coerce
    .number()
    .int()
    .min(0)
    .default(3)
    .describe('Minimum delay of UDP-CONNECT health monitors in seconds'),
  minimum_tls_version: z.enum(TLS_VERSIONS).optional().describe('Minimum TLS version of listeners and pools'),
  tls_cipher_prohibit_list: listOf(z.string()).default([]).describe('Ciphers that listeners and pools may not use'),
  default_listener_ciphers: cipherString
    .default(MOZILLA_INTERMEDIATE)
    .describe('Default OpenSSL cipher string of TERMINATED_HTTPS listeners'),
  default_pool_ciphers: cipherString
    .default(MOZILLA_INTERMEDIATE)
    .describe('Default OpenSSL cipher string of pools with tls_enabled'),
  allow_pagination: flag.default(true).describe('Honor limit, marker and page_reverse in lists'),
  allow_sorting: flag.default(true).describe('Honor sort, sort_key and sort_dir in lists'),
  allow_filtering: flag.default(true).describe('Honor filters in lists'),
  allow_field_selection: flag.default(true).describe('Honor fields in responses'),
  pagination_max_limit: z.coerce
    .number()
    .int()
    .min(1)
    .default(1000)
    .describe('Maximum number of objects per page of a list'),
  healthcheck_enabled: flag.default(false).describe('Enable /healthcheck'),
  healthcheck_refresh_interval: z.coerce
    .number()
    .min(0)
    .default(5)
    .describe('Seconds that /healthcheck reuses the result of a database check'),
}

const { host, port, trusted_proxies } = apiAddress(9876)

/** Settings for access to the load balancing API. */
const accessOptions = {
  mount_prefix: z
    .string()
    .regex(/^(\/[\w.~-]+)+\/?$/, 'must be a path such as /load-balancer/')
    .transform(path => path.replace(/\/$/, ''))
    .optional()
    .describe('Path under which a web server mounts the API; requests without it are answered too'),
  trusted_proxies,
  policy: z
    .enum(['union', 'legacy', 'new'])
    .default('union')
    .describe(
      'Access rules: legacy (roles load-balancer_observer, load-balancer_member ...), new (reader, member, admin), or union: what either allows',
    ),
  system_scope: flag
    .default(false)
    .describe('Accept system-scoped tokens: admin may do everything, reader may read everything'),
}

/** Settings for the key manager of listeners' and pools' certificates. */
const keyManagerOptions = {
  key_manager_url: serviceUrl('https://barbican.example:9311')
    .transform(url => url.replace(/\/+$/, '').replace(/\/v1$/, ''))
    .optional()
    .describe('URL of the key manager for certificates of listeners and pools; defaults to our own'),
  key_manager_ca_file: z
    .string()
    .min(1)
    .optional()
    .describe('PEM file of the CA certificates for the key manager; defaults to those of Node.js'),
  key_manager_gateway_port: portValue
    .default(9313)
    .describe(
      'TCP port at which amphorae reach the key manager of key_manager_url and the identity service, by way of a worker on the management network',
    ),
  key_manager_timeout: z.coerce
    .number()
    .positive()
    .max(300)
    .default(10)
    .describe('Timeout of a request to the key manager in seconds'),
}

const quota = z
  .strictObject({
    loadbalancer: defaultQuota('load balancers', 100),
    listener: defaultQuota('listeners', 500),
    pool: defaultQuota('pools', 500),
    member: defaultQuota('members', 5_000),
    healthmonitor: defaultQuota('health monitors', 500),
    l7policy: defaultQuota('L7 policies', 1_000),
    l7rule: defaultQuota('L7 rules', 5_000),
  })
  .prefault({})

/** Settings of the load balancing API. */
export const loadBalancerOptions = z
  .strictObject({
    host,
    port,
    public_url: z.url().optional(),
    topology: z.enum(['SINGLE', 'ACTIVE_STANDBY']).default('SINGLE'),
    default_provider: z.string().default('amphora'),
    quota,
    ...objectOptions,
    ...accessOptions,
    ...keyManagerOptions,
  })
  .prefault({})

export type LoadBalancerSettings = z.output<typeof loadBalancerOptions>
