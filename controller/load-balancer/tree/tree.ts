import * as z from 'zod'
import { healthMonitor } from '../objects/health-monitors/resource.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { l7Rule } from '../objects/l7-rules/resource.js'
import { listener } from '../objects/listeners/resource.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { member } from '../objects/members/resource.js'
import { pool } from '../objects/pools/resource.js'
import { field, first, list, node, object, type ValueOf } from './node.js'

export type Change = 'create' | 'update' | 'delete'

const change = (table: string) => field<Change>(`${table}.change`, z.enum(['create', 'update', 'delete']))
const id = (table: string) => field(`${table}.id`, z.string())

const memberNode = node(member, {
  id: id('member'),
  change: change('member'),
  /** The server's id in HAProxy: unique in the pool, never reused. */
  serverNumber: field('member.server_number', z.number()),
  /** Whether it was down in the last report. */
  isDown: field(`member.operating_status = 'ERROR'`, z.boolean()),
})

const healthMonitorNode = node(healthMonitor, { id: id('health_monitor'), change: change('health_monitor') })

const poolNode = node(pool, {
  id: id('pool'),
  change: change('pool'),
  // A monitor may exist beside others under deletion, and takes precedence over them.
  healthMonitor: first(
    healthMonitorNode,
    'health_monitor.pool_id = pool.id',
    `health_monitor.change = 'delete', health_monitor.created_at DESC`,
  ),
  members: list(memberNode, 'member.pool_id = pool.id', 'member.server_number'),
})

const l7RuleNode = node(l7Rule, { id: id('l7_rule'), change: change('l7_rule') })

const l7PolicyNode = node(l7Policy, {
  id: id('l7_policy'),
  change: change('l7_policy'),
  /** All must match; a policy without rules never matches. */
  rules: list(l7RuleNode, 'l7_rule.l7_policy_id = l7_policy.id'),
})

const listenerNode = node(listener, {
  id: id('listener'),
  change: change('listener'),
  l7Policies: list(l7PolicyNode, 'l7_policy.listener_id = listener.id', 'l7_policy.position, l7_policy.id'),
})

const nullableText = z.string().nullable()

/** Additional addresses of the VIP port, each on a different subnet. */
const additionalVips = field(
  `(SELECT coalesce(json_agg(json_build_object('address', vip->>'ip_address', 'subnetId', vip->>'subnet_id')), '[]'::json)
      FROM jsonb_array_elements(load_balancer.additional_vips) vip)`,
  z.array(z.object({ address: z.string(), subnetId: z.string() })),
)

const MATERIAL_KINDS = ['certificate', 'authority', 'revocation list'] as const

/** What the load balancer is bound to at the key manager, as last known. */
const material = field(
  `(SELECT coalesce(json_agg(json_build_object('ref', m.ref, 'kind', m.kind, 'digest', m.digest, 'problem', m.problem)
                            ORDER BY m.ref, m.kind), '[]'::json)
      FROM tls_material m WHERE m.load_balancer_id = load_balancer.id)`,
  z.array(
    z.object({
      ref: z.string(),
      kind: z.enum(MATERIAL_KINDS),
      /** Null while it is unknown. */
      digest: z.string().nullable(),
      /** Why the reference cannot be used any more, as a clause. */
      problem: z.string().nullable(),
    }),
  ),
)

/** What the project proves to CAs at the moment. */
const challenges = field(
  `(SELECT coalesce(json_agg(json_build_object('id', c.id, 'type', c.type, 'identifier', c.identifier, 'token', c.token,
                                               'keyAuthorization', c.key_authorization, 'digest', c.digest)
                            ORDER BY c.id), '[]'::json)
      FROM acme_challenge c WHERE c.project_id = load_balancer.project_id)`,
  z.array(
    z.object({
      id: z.string(),
      type: z.enum(['http-01', 'tls-alpn-01']),
      identifier: z.string(),
      token: z.string(),
      keyAuthorization: z.string(),
      /** SHA-256 of the key authorization in hexadecimal. */
      digest: z.string(),
    }),
  ),
)

/** A load balancer with everything below it, as a field of a statement over load_balancer. */
export const loadBalancerTree = node(loadBalancer, {
  id: id('load_balancer'),
  change: change('load_balancer'),
  topology: field('load_balancer.topology', z.enum(['SINGLE', 'ACTIVE_STANDBY'])),
  vip: object({
    address: field('load_balancer.vip_address', z.string()),
    subnetId: field('load_balancer.vip_subnet_id', nullableText),
    networkId: field('load_balancer.vip_network_id', nullableText),
    portId: field('load_balancer.vip_port_id', nullableText),
    ownsPort: field('load_balancer.owns_vip_port', z.boolean()),
    securityGroups: field('load_balancer.vip_sg_ids', z.array(z.string())),
  }),
  additionalVips,
  generation: field('load_balancer.generation', z.number()),
  appliedGeneration: field('load_balancer.applied_generation', z.number()),
  material,
  challenges,
  /** What listeners were last seen to serve that they should not, as clauses. */
  mismatches: field(
    `ARRAY(SELECT DISTINCT p.problem FROM certificate_proof p
            WHERE p.load_balancer_id = load_balancer.id AND p.problem IS NOT NULL ORDER BY p.problem)`,
    z.array(z.string()),
  ),
  /** Hash of what the key manager was last told of it; null if that was nothing. */
  boundSha256: field('load_balancer.bound_sha256', nullableText),
  listeners: list(listenerNode, 'listener.load_balancer_id = load_balancer.id'),
  pools: list(poolNode, 'pool.load_balancer_id = load_balancer.id'),
})

/**
 * The desired state of a load balancer with everything below it, as stored by the API and applied by a provider.
 * Contains objects under deletion, marked by their change.
 */
export type LoadBalancerTree = ValueOf<typeof loadBalancerTree>
export type ListenerNode = ValueOf<typeof listenerNode>
export type L7PolicyNode = ValueOf<typeof l7PolicyNode>
export type L7RuleNode = ValueOf<typeof l7RuleNode>
export type PoolNode = ValueOf<typeof poolNode>
export type MemberNode = ValueOf<typeof memberNode>
export type HealthMonitorNode = ValueOf<typeof healthMonitorNode>

export type ListenerProtocol = ListenerNode['protocol']
export type PoolProtocol = PoolNode['protocol']
export type Algorithm = PoolNode['lbAlgorithm']
export type SessionPersistence = NonNullable<PoolNode['sessionPersistence']>
export type L7CompareType = L7RuleNode['compareType']

export type AcmeChallenge = LoadBalancerTree['challenges'][number]
export type TlsMaterial = LoadBalancerTree['material'][number]
