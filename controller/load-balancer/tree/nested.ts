import * as z from 'zod'
import { healthMonitor } from '../objects/health-monitors/resource.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { l7Rule } from '../objects/l7-rules/resource.js'
import { listener } from '../objects/listeners/resource.js'
import { loadBalancer } from '../objects/load-balancers/resource.js'
import { member } from '../objects/members/resource.js'
import { pool } from '../objects/pools/resource.js'
import { type Created, createShape, fixed, settable } from '../schema/attributes.js'
import { listOf } from '../schema/input.js'
import { uuid } from '../schema/values.js'

/**
 * Create bodies that may contain child objects. The schemas are those of the children's own POST without
 * attributes that the parent sets.
 */
export type MemberBody = Created<typeof member.attributes>
export type MonitorBody = Omit<Created<typeof healthMonitor.attributes>, 'pool_id'>
export type PoolBody = Omit<Created<typeof pool.attributes>, 'loadbalancer_id' | 'listener_id'> & PoolChildren
type PoolChildren = { members: MemberBody[]; healthmonitor: MonitorBody | null }

export type RuleBody = Created<typeof l7Rule.attributes>
type PolicyChildren = { rules: RuleBody[] }

/** A pool in a listener, policy or load balancer: a definition, or only a name that refers to one. */
export type NestedPool = Omit<PoolBody, 'protocol' | 'lb_algorithm'> & {
  protocol: PoolBody['protocol'] | null
  lb_algorithm: PoolBody['lb_algorithm'] | null
}
export type ListenerBody = Omit<Created<typeof listener.attributes>, 'loadbalancer_id'> & {
  default_pool: NestedPool | null
  l7policies: NestedPolicy[]
}
/** A policy in a listener, with its pool as an object instead of an id. */
export type NestedPolicy = Omit<Created<typeof l7Policy.attributes>, 'listener_id' | 'redirect_pool_id'> &
  PolicyChildren & { redirect_pool: NestedPool | null }

const FROM_PARENT = ['project_id', 'tenant_id'] as const

/** Null and a missing key mean an empty list. */
const listOrNothing = <T extends z.ZodType>(schema: T) =>
  listOf(schema)
    .nullish()
    .transform(value => value ?? [])

const nestedMember = z.strictObject(createShape(member.attributes, FROM_PARENT))
const nestedMonitor = z.strictObject(createShape(healthMonitor.attributes, [...FROM_PARENT, 'pool_id']))
const poolChildren = {
  members: listOrNothing(nestedMember),
  healthmonitor: nestedMonitor.nullish().transform(value => value ?? null),
}

const nestedPool = z.strictObject({
  ...createShape(
    {
      ...pool.attributes,
      protocol: fixed(pool.attributes.protocol.type ?? uuid, null, pool.attributes.protocol.about),
      lb_algorithm: settable(pool.attributes.lb_algorithm.type ?? uuid, null, pool.attributes.lb_algorithm.about),
    },
    [...FROM_PARENT, 'loadbalancer_id', 'listener_id'],
  ),
  ...poolChildren,
})

const poolOrNone = nestedPool.nullish().transform(value => value ?? null)

const policyChildren = { rules: listOrNothing(z.strictObject(createShape(l7Rule.attributes, FROM_PARENT))) }
const nestedPolicy = z.strictObject({
  ...createShape(l7Policy.attributes, [...FROM_PARENT, 'listener_id', 'redirect_pool_id']),
  redirect_pool: poolOrNone,
  ...policyChildren,
})

const listenerChildren = { default_pool: poolOrNone, l7policies: listOrNothing(nestedPolicy) }
const nestedListener = z.strictObject({
  ...createShape(listener.attributes, [...FROM_PARENT, 'loadbalancer_id']),
  ...listenerChildren,
})

export const poolCreateSchema = z.strictObject({
  ...createShape(pool.attributes),
  ...poolChildren,
}) as unknown as z.ZodType<Created<typeof pool.attributes> & PoolChildren>

export const listenerCreateSchema = z.strictObject({
  ...createShape(listener.attributes),
  ...listenerChildren,
}) as unknown as z.ZodType<Created<typeof listener.attributes> & ListenerBody>

export const policyCreateSchema = z.strictObject({
  ...createShape(l7Policy.attributes),
  ...policyChildren,
}) as unknown as z.ZodType<Created<typeof l7Policy.attributes> & PolicyChildren>

export type LoadBalancerBody = Created<typeof loadBalancer.attributes> & {
  listeners: ListenerBody[]
  pools: NestedPool[]
}

export const loadBalancerCreateSchema = z.strictObject({
  ...createShape(loadBalancer.attributes),
  listeners: listOrNothing(nestedListener),
  pools: listOrNothing(nestedPool),
}) as unknown as z.ZodType<LoadBalancerBody>
