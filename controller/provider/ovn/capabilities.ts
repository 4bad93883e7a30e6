import type { ProviderCapabilities } from '../../load-balancer/schema/capabilities.js'

const PROTOCOLS = ['TCP', 'UDP', 'SCTP']

/** Where the same option works. */
const AMPHORA = 'use the provider amphora for it'

/** A value that says nothing of the option: the default, or none. */
const only =
  (reason: string, ...usual: readonly unknown[]) =>
  (value: unknown): string | null =>
    usual.some(one => JSON.stringify(one) === JSON.stringify(value)) ? null : `${JSON.stringify(value)}: ${reason}`

/** One of these words. */
const among =
  (words: readonly string[], reason: string) =>
  (value: unknown): string | null =>
    words.includes(String(value)) ? null : `'${value}': ${reason}`

const OPEN = `OVN opens no connections of its own, so it has no time limits for them; ${AMPHORA}`
const LAYER_4 = `OVN looks at addresses and ports only; ${AMPHORA}`
const WHERE_THEY_SERVE = `OVN probes members where they serve; ${AMPHORA}`
/** A hypervisor has a flow for each stretch of addresses between them: up to 128 for one of IPv6. */
const MAX_CIDRS = 32
/** The greatest number that OVN takes for the time of a client without packets. */
const MAX_AFFINITY = 65_535

/**
 * Capabilities of the provider in OVN.
 * @param datapath connection tracking of the one in userspace knows no SCTP
 */
export const ovnCapabilities = (datapath: 'system' | 'netdev' | null): ProviderCapabilities => {
  const isProtocol = among(PROTOCOLS, `OVN balances ${PROTOCOLS.join(', ')}; ${AMPHORA}`)
  const protocol = (value: unknown): string | null =>
    datapath === 'netdev' && value === 'SCTP'
      ? `'SCTP': Open vSwitch runs without its kernel module here, and tracks no SCTP connections; load the module openvswitch, or ${AMPHORA}`
      : isProtocol(value)
  const isProbe = among(['TCP', 'UDP-CONNECT'], `OVN probes with TCP and UDP-CONNECT; use one of these, or ${AMPHORA}`)
  return {
    name: 'ovn',
    description: 'Load balancers in OVN: without a machine, for layer 4.',
    supported: {
      loadbalancer: {
        vip_qos_policy_id: only('OVN shapes no traffic of a VIP'),
        vip_sg_ids: only(
          'OVN balances before it looks at the VIP’s security groups; use allowed_cidrs of listeners',
          [],
        ),
      },
      listener: {
        protocol,
        connection_limit: only(`OVN counts no connections; ${AMPHORA}`, -1),
        timeout_client_data: only(OPEN, 50_000),
        timeout_member_connect: only(OPEN, 5_000),
        timeout_member_data: only(OPEN, 50_000),
        timeout_tcp_inspect: only(OPEN, 0),
        allowed_cidrs: cidrsProblem,
        insert_headers: only(LAYER_4, {}),
        ...Object.fromEntries(LISTENER_TLS.map(name => [name, only(LAYER_4, [], false, 'NONE')])),
      },
      pool: {
        protocol,
        lb_algorithm: among(
          ['SOURCE_IP_PORT', 'SOURCE_IP'],
          'OVN chooses by a hash of addresses and ports; use SOURCE_IP_PORT or SOURCE_IP',
        ),
        session_persistence: persistenceProblem,
        deregistration_delay: only('OVN lets connections end by themselves; leave it at 30', 30),
        ...Object.fromEntries(POOL_TLS.map(name => [name, only(LAYER_4, [], false)])),
      },
      member: {
        weight: (value: unknown) =>
          value === 0 || value === 1
            ? null
            : `${value}: OVN knows no shares; use 1, or 0 for a member that gets nothing new`,
        backup: only(`OVN knows no backup members; ${AMPHORA}`, false),
        monitor_address: only(WHERE_THEY_SERVE),
        monitor_port: only(WHERE_THEY_SERVE),
        request_sriov: only('OVN plugs in no interfaces for load balancers', false),
      },
      healthmonitor: {
        type: (type: unknown, { pool_protocol: protocol }) => isProbe(type) ?? probeProblem(type, protocol),
        url_path: only(`OVN looks at no answers; ${AMPHORA}`),
        http_version: only(LAYER_4),
        domain_name: only(LAYER_4),
      },
      l7policy: { action: only(LAYER_4) },
    },
    usesMachines: false,
    countsTraffic: false,
    physicalVipProblem:
      'OVN does not balance what comes from a physical network; give the load balancer a VIP on another network and a floating IP',
    filteredVipProblem:
      'OVN balances before it looks at them; use a port without security groups, and allowed_cidrs of listeners',
    failoverProblem: 'no machine serves the load balancer, every hypervisor does',
    acrossIpVersions: 'nothing',
    needsMemberSubnets: true,
    flavorKeys: null,
    availabilityZoneKeys: null,
  }
}

const LISTENER_TLS = [
  ...['default_tls_container_ref', 'sni_container_refs', 'client_ca_tls_container_ref', 'client_authentication'],
  ...['client_crl_container_ref', 'tls_ciphers', 'tls_versions', 'alpn_protocols'],
  ...['hsts_max_age', 'hsts_include_subdomains', 'hsts_preload'],
]
const POOL_TLS = [
  ...['tls_enabled', 'tls_container_ref', 'ca_tls_container_ref', 'crl_container_ref'],
  ...['tls_ciphers', 'tls_versions', 'alpn_protocols'],
]

/** OVN probes members as their pool serves: TCP by connections, UDP by datagrams. */
function probeProblem(type: unknown, protocol: unknown): string | null {
  const fitting = protocol === 'UDP' ? 'UDP-CONNECT' : 'TCP'
  if (protocol === 'SCTP') return `'${type}': OVN cannot probe the members of SCTP pools; ${AMPHORA}`
  return protocol === undefined || type === fitting
    ? null
    : `'${type}': OVN probes the members of ${protocol} pools by ${fitting} only; use that, or ${AMPHORA}`
}

function cidrsProblem(value: unknown): string | null {
  const count = Array.isArray(value) ? value.length : 0
  return count <= MAX_CIDRS
    ? null
    : `${count} CIDRs: OVN takes up to ${MAX_CIDRS} for a listener; join neighbours, or ${AMPHORA}`
}

function persistenceProblem(value: unknown): string | null {
  const {
    type,
    persistence_timeout: timeout,
    persistence_granularity: granularity,
  }: Partial<Record<string, unknown>> = typeof value === 'object' && value !== null ? { ...value } : {}
  if (type !== 'SOURCE_IP') return `'${type}': OVN knows clients by their addresses only; use SOURCE_IP`
  if (Number(timeout ?? 0) > MAX_AFFINITY) return `persistence_timeout ${timeout}: OVN takes up to ${MAX_AFFINITY} s`
  return (granularity ?? null) === null
    ? null
    : `persistence_granularity '${granularity}': OVN keeps each address with its member; ${AMPHORA}`
}
