import t from 'tap'
import { healthMonitor } from '../../../../controller/load-balancer/objects/health-monitors/resource.js'
import { l7Policy } from '../../../../controller/load-balancer/objects/l7-policies/resource.js'
import { listener } from '../../../../controller/load-balancer/objects/listeners/resource.js'
import { loadBalancer } from '../../../../controller/load-balancer/objects/load-balancers/resource.js'
import { member } from '../../../../controller/load-balancer/objects/members/resource.js'
import { pool } from '../../../../controller/load-balancer/objects/pools/resource.js'
import {
  enabledProvider,
  refuseFailover,
  refuseUnsupported,
  refuseVipPlace,
} from '../../../../controller/load-balancer/schema/capabilities.js'
import type { Resource } from '../../../../controller/load-balancer/schema/resource.js'
import { ovnCapabilities } from '../../../../controller/provider/ovn/capabilities.js'

const refusal = (check: () => void): string | null => {
  try {
    check()
    return null
  } catch (error) {
    return `${(error as { status: number }).status} ${(error as Error).message}`
  }
}
const userspace = ovnCapabilities('netdev')
const refused = (resource: Resource, values: object, of = userspace) =>
  refusal(() => refuseUnsupported(of, resource, values as Record<string, unknown>))

t.test('what OVN does is accepted', async t => {
  for (const protocol of ['TCP', 'UDP']) {
    t.equal(
      refused(listener, { protocol, connection_limit: -1, timeout_client_data: 50_000, insert_headers: {} }),
      null,
    )
    t.equal(refused(pool, { protocol, lb_algorithm: 'SOURCE_IP', session_persistence: { type: 'SOURCE_IP' } }), null)
  }
  for (const weight of [0, 1]) t.equal(refused(member, { weight, backup: false, monitor_address: null }), null)
})

t.test('what it does not is refused with 501, the reason, and what to do', async t => {
  const reference = 'https://keys.test/v1/secrets/1'
  const layer4 = /OVN looks at addresses and ports only; use the provider amphora for it$/
  const persistence = (values: object) => ({ session_persistence: { type: 'SOURCE_IP', ...values } })
  const cases: [Resource, object, RegExp][] = [
    ...['HTTP', 'HTTPS', 'TERMINATED_HTTPS', 'PROMETHEUS'].map((protocol): [Resource, object, RegExp] => [
      ...([listener, { protocol }] as const),
      new RegExp(`Listener protocol '${protocol}': OVN balances TCP, UDP, SCTP; use the provider amphora for it$`),
    ]),
    [listener, { connection_limit: 5 }, /connection_limit 5: OVN counts no connections; use the provider amphora/],
    ...['timeout_client_data', 'timeout_member_connect', 'timeout_member_data', 'timeout_tcp_inspect'].map(
      (name): [Resource, object, RegExp] => [
        listener,
        { [name]: 1 },
        new RegExp(`${name} 1: OVN opens no connections of its own.*; use the provider amphora`),
      ],
    ),
    [listener, { insert_headers: { 'X-Forwarded-For': 'true' } }, layer4],
    [listener, { default_tls_container_ref: reference }, layer4],
    [listener, { sni_container_refs: [reference] }, layer4],
    [listener, { client_authentication: 'MANDATORY' }, layer4],
    [listener, { tls_ciphers: 'AESGCM' }, layer4],
    [listener, { alpn_protocols: ['h2'] }, layer4],
    [listener, { hsts_max_age: 1 }, layer4],
    [listener, { hsts_preload: true }, layer4],
    [
      ...([listener, { allowed_cidrs: Array(33).fill('192.0.2.0/24') }] as const),
      /allowed_cidrs 33 CIDRs: OVN takes up to 32 for a listener; join neighbours, or use the provider amphora/,
    ],
    ...['HTTP', 'HTTPS', 'PROXY', 'PROXYV2'].map((protocol): [Resource, object, RegExp] => [
      ...([pool, { protocol }] as const),
      new RegExp(`Pool protocol '${protocol}': OVN balances`),
    ]),
    ...['ROUND_ROBIN', 'LEAST_CONNECTIONS'].map((lb_algorithm): [Resource, object, RegExp] => [
      ...([pool, { lb_algorithm }] as const),
      new RegExp(`lb_algorithm '${lb_algorithm}': .*; use SOURCE_IP_PORT or SOURCE_IP$`),
    ]),
    ...['HTTP_COOKIE', 'APP_COOKIE'].map((type): [Resource, object, RegExp] => [
      ...([pool, persistence({ type })] as const),
      new RegExp(`session_persistence '${type}': OVN knows clients by their addresses only; use SOURCE_IP$`),
    ]),
    [
      pool,
      persistence({ persistence_granularity: '255.255.0.0' }),
      /persistence_granularity '255\.255\.0\.0': OVN keeps/,
    ],
    [pool, persistence({ persistence_timeout: 65_536 }), /persistence_timeout 65536: OVN takes up to 65535 s$/],
    [pool, { deregistration_delay: 5 }, /OVN lets connections end by themselves; leave it at 30$/],
    [pool, { tls_enabled: true }, layer4],
    [pool, { ca_tls_container_ref: reference }, layer4],
    [member, { weight: 2 }, /weight 2: OVN knows no shares; use 1, or 0/],
    [member, { backup: true }, /OVN knows no backup members; use the provider amphora/],
    [member, { monitor_port: 81 }, /OVN probes members where they serve; use the provider amphora/],
    [member, { monitor_address: '192.0.2.1' }, /OVN probes members where they serve; use the provider amphora/],
    [member, { request_sriov: true }, /OVN plugs in no interfaces/],
    ...['HTTP', 'HTTPS', 'PING', 'TLS-HELLO', 'SCTP'].map((type): [Resource, object, RegExp] => [
      ...([healthMonitor, { type }] as const),
      new RegExp(`type '${type}': OVN probes with TCP and UDP-CONNECT; use one of these`),
    ]),
    [healthMonitor, { type: 'UDP-CONNECT', url_path: '/a?b' }, /url_path "\/a\?b": OVN looks at no answers/],
    [l7Policy, { action: 'REJECT' }, layer4],
    [loadBalancer, { vip_sg_ids: ['1'] }, /use allowed_cidrs of listeners$/],
    [loadBalancer, { vip_qos_policy_id: '1' }, /OVN shapes no traffic of a VIP$/],
  ]
  for (const [resource, values, words] of cases)
    t.match(
      refused(resource, values),
      new RegExp(`^501 Provider 'ovn' does not support a requested option: .*${words.source}`),
    )
  t.match(
    refusal(() => refuseFailover(userspace)),
    /^501 .*no machine serves/,
  )
  t.match(
    refusal(() => refuseVipPlace(userspace, { isPhysical: true, isFiltered: false })),
    /^501 .*floating IP/,
  )
  t.match(
    refusal(() => refuseVipPlace(userspace, { isPhysical: false, isFiltered: true })),
    /^501 .*a VIP port with security groups: .*allowed_cidrs/,
  )
  t.equal(
    refusal(() => refuseVipPlace(userspace, { isPhysical: false, isFiltered: false })),
    null,
  )
})

t.test('SCTP needs the kernel’s connection tracking', async t => {
  t.match(refused(listener, { protocol: 'SCTP' }), /^501 .*without its kernel module/)
  t.equal(refused(listener, { protocol: 'SCTP' }, ovnCapabilities('system')), null)
})

t.test('where it is not enabled, the refusal says how to get it', async t => {
  t.equal(
    refusal(() => enabledProvider([], 'ovn')),
    "400 Provider 'ovn' is not enabled. It needs networks in OVN: an installation with the setting network.driver=ovn.",
  )
  t.equal(
    refusal(() => enabledProvider([userspace], 'vmware')),
    "400 Provider 'vmware' is not enabled.",
  )
})
