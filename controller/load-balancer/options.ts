import { isIP } from 'node:net'
import { z } from 'zod'
import { apiAddress, defaultQuota, flag, listOf, serviceUrl } from '../options/values.js'

const address = z.string().refine(text => isIP(text) !== 0, { error: 'an IPv4 or IPv6 address' })

/** The TLS versions that a listener or pool may name, oldest first. */
export const TLS_VERSIONS = ['SSLv3', 'TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3'] as const

/** The list "B" of OWASP's TLS cipher recommendations, as OpenSSL writes it. */
const OWASP_B = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'DHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'DHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
  'DHE-RSA-CHACHA20-POLY1305',
].join(':')

/** What an operator may allow, forbid or preset in the objects of the load-balancing API. */
const objectOptions = {
  allow_tls_terminated_listeners: flag.default(true).describe('Whether listeners may be TERMINATED_HTTPS'),
  allow_prometheus_listeners: flag.default(true).describe('Whether listeners may be PROMETHEUS'),
  allow_ping_health_monitors: flag.default(true).describe('Whether health monitors may be PING'),
  allow_vip_port_id: flag.default(true).describe('Whether a VIP may be given by its port'),
  allow_vip_network_id: flag.default(true).describe('Whether a VIP may be given by its network'),
  allow_vip_subnet_id: flag.default(true).describe('Whether a VIP may be given by its subnet'),
  valid_vip_networks: listOf(z.guid().toLowerCase())
    .default([])
    .describe('The only networks for VIPs; any network when empty'),
  denied_vip_networks: listOf(z.guid().toLowerCase()).default([]).describe('Networks on which no VIP may be'),
  reserved_ips: listOf(address)
    .default(['169.254.169.254'])
    .describe('Addresses that no member may have, such as that of the metadata service'),
  host_member_ports: listOf(z.coerce.number().int().min(1).max(65535))
    .default([])
    .describe(
      'TCP ports of the controller’s own machine that members may have, at its address on the public network; all others are closed to tenants',
    ),
  log_requests: flag
    .default(false)
    .describe(
      'Whether amphorae log every request, and every connection of TCP, rather than those alone that end in an error; for a load balancer from its next change on',
    ),
  udp_connect_min_delay: z.coerce
    .number()
    .int()
    .min(0)
    .default(3)
    .describe('Least seconds between two probes of a UDP-CONNECT health monitor'),
  minimum_tls_version: z.enum(TLS_VERSIONS).optional().describe('Older TLS versions are refused'),
  tls_cipher_prohibit_list: listOf(z.string()).default([]).describe('Ciphers that no listener or pool may name'),
  default_listener_ciphers: z
    .string()
    .min(1)
    .default(OWASP_B)
    .describe('OpenSSL cipher string of TERMINATED_HTTPS listeners that name none'),
  default_pool_ciphers: z
    .string()
    .min(1)
    .default(OWASP_B)
    .describe('OpenSSL cipher string of pools with tls_enabled that name none'),
  allow_pagination: flag.default(true).describe('Whether lists heed limit, marker and page_reverse'),
  allow_sorting: flag.default(true).describe('Whether lists heed sort, sort_key and sort_dir'),
  allow_filtering: flag.default(true).describe('Whether lists heed filters'),
  allow_field_selection: flag.default(true).describe('Whether answers heed fields'),
  pagination_max_limit: z.coerce.number().int().min(1).default(1000).describe('Most objects on one page of a list'),
  healthcheck_enabled: flag.default(false).describe('Whether /healthcheck is there'),
  healthcheck_refresh_interval: z.coerce
    .number()
    .min(0)
    .default(5)
    .describe('Seconds for which one check of the database answers every /healthcheck'),
}

const { host, port, trusted_proxies } = apiAddress(9876)

/** How clients reach the load-balancing API, and whose roles count. */
const accessOptions = {
  mount_prefix: z
    .string()
    .regex(/^(\/[\w.~-]+)+\/?$/, 'must be a path such as /load-balancer/')
    .transform(path => path.replace(/\/$/, ''))
    .optional()
    .describe('Path under which a web server mounts the API; what comes without it is answered as well'),
  trusted_proxies,
  strict_roles: flag
    .default(false)
    .describe(
      'Whether only the newer rules count: load-balancer_observer and load-balancer_member grant nothing without reader or member',
    ),
  system_scope: flag
    .default(false)
    .describe('Whether tokens of the whole system count: admin there may do everything, reader may see everything'),
}

/** Where the certificates are to which listeners and pools refer. */
const keyManagerOptions = {
  key_manager_url: serviceUrl('https://barbican.example:9311')
    .transform(url => url.replace(/\/+$/, '').replace(/\/v1$/, ''))
    .optional()
    .describe('The key manager that holds the certificates of listeners and pools; our own when not given'),
  key_manager_ca_file: z
    .string()
    .min(1)
    .optional()
    .describe('PEM file of the authorities that vouch for the key manager; the usual ones otherwise'),
  key_manager_timeout: z.coerce
    .number()
    .positive()
    .max(300)
    .default(10)
    .describe('Seconds for one answer of the key manager'),
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

/** The options of the load-balancing API. */
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
