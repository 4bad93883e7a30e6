import { randomUUID } from 'node:crypto'
import { badRequest, conflict } from '../../http/errors.js'
import { healthMonitor } from '../objects/health-monitors/resource.js'
import { checkMonitorType, completeMonitor } from '../objects/health-monitors/rules.js'
import { orderPolicies } from '../objects/l7-policies/positions.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { checkPolicyListener, completePolicy, type PolicyValues } from '../objects/l7-policies/rules.js'
import { l7Rule } from '../objects/l7-rules/resource.js'
import { checkRuleCount, completeRule } from '../objects/l7-rules/rules.js'
import { listener } from '../objects/listeners/resource.js'
import { checkPoolUse, completeListener, transportOf, type UsedPool } from '../objects/listeners/rules.js'
import { member } from '../objects/members/resource.js'
import { duplicateMember } from '../objects/members/rules.js'
import { pool } from '../objects/pools/resource.js'
import { completePool } from '../objects/pools/rules.js'
import type { LoadBalancerSettings } from '../options.js'
import { type ProviderCapabilities, refuseUnsupported } from '../schema/capabilities.js'
import { invalid, missing } from '../schema/faults.js'
import { invalidInput } from '../schema/input.js'
import { MISSING } from '../schema/values.js'
import type { ListenerBody, MemberBody, MonitorBody, NestedPool, PoolBody, RuleBody } from './nested.js'

/** Objects to create: checked bodies with ids, and references among them. */
export type NewMember = { id: string; values: MemberBody }
export type NewMonitor = { id: string; values: MonitorBody & { max_retries_down: number } }
export type NewPool = {
  id: string
  values: Omit<PoolBody, 'members' | 'healthmonitor'>
  members: NewMember[]
  monitor: NewMonitor | null
}
export type NewRule = { id: string; values: RuleBody }
export type NewPolicy = { id: string; values: PolicyValues; rules: NewRule[] }
export type NewListener = {
  id: string
  values: Omit<ListenerBody, 'default_pool' | 'default_pool_id' | 'l7policies'>
  transport: string
  defaultPoolId: string | null
  /** By position. */
  policies: NewPolicy[]
}
export type NewObjects = { pools: NewPool[]; listeners: NewListener[] }

/**
 * Plans the listeners, policies and pools of one request. A nested pool with only a name refers to the pool
 * that the request defines with that name. Pure. `checkReferences` checks the addresses of members.
 * @throws ApiError 400, 404 or 409 when a rule is broken
 */
export function planObjects(
  listeners: readonly ListenerBody[],
  pools: readonly NestedPool[],
  settings: LoadBalancerSettings,
): NewObjects {
  const nested = listeners.flatMap(({ default_pool, l7policies }) =>
    [default_pool, ...l7policies.map(({ redirect_pool }) => redirect_pool)].filter(body => body !== null),
  )
  if (nested.some(({ name }) => name === '')) throw invalid('Pools named in a listener or L7 policy must have a name.')
  const definitions = [...pools, ...nested.filter(body => !isReference(body))]
  const names = definitions.map(({ name }) => name).filter(name => name !== '')
  const repeated = firstRepeated(names, name => name)
  if (repeated !== undefined)
    throw invalid(`Pool names must be unique when creating a fully populated load balancer: ${repeated}`)

  const planned = new Map<NestedPool, NewPool>(
    definitions.map(body => [body, planPool(requireProtocol(body), settings)]),
  )
  const byName = new Map([...planned.values()].map(made => [made.values.name, made]))
  const plannedFor = (body: NestedPool | null): NewPool | null => {
    if (body === null) return null
    const pool = planned.get(body) ?? byName.get(body.name)
    if (pool === undefined) throw invalid(`Pool ${body.name} is referenced but not defined.`)
    return pool
  }
  const newListeners = listeners.map(({ default_pool, default_pool_id: poolId, l7policies, ...values }) => {
    // The load balancer is new, so no pool can have this id.
    if (poolId !== null) throw missing('Pool', poolId)
    const made = planListener(values, settings)
    if (l7policies.length > 0) checkPolicyListener(values.protocol)
    const policies = l7policies.map(({ redirect_pool, rules, ...policy }) => {
      const redirectPool = plannedFor(redirect_pool)
      if (redirectPool !== null) checkPoolUse(values.protocol, redirectPool.values)
      return { ...policy, redirect_pool_id: redirectPool?.id ?? null, rules }
    })
    made.policies = orderPolicies(policies).map(({ rules, ...policy }) => planPolicy(policy, rules))
    const defaultPool = plannedFor(default_pool)
    return defaultPool === null ? made : withDefaultPool(made, { ...defaultPool.values, id: defaultPool.id })
  })
  const clash = firstRepeated(newListeners, ({ transport, values }) => `${transport} ${values.protocol_port}`)
  if (clash !== undefined) throw conflict(duplicateListener(clash.values.protocol, clash.values.protocol_port))
  return { pools: [...planned.values()], listeners: newListeners }
}

/** The first item with the key of an earlier one. */
function firstRepeated<Item>(items: readonly Item[], keyOf: (item: Item) => string): Item | undefined {
  const seen = new Set<string>()
  return items.find(item => {
    const key = keyOf(item)
    return seen.has(key) || !seen.add(key)
  })
}

function planListener(body: NewListener['values'], settings: LoadBalancerSettings): NewListener {
  const values = completeListener(settings, body)
  return { id: randomUUID(), values, transport: transportOf(body.protocol), defaultPoolId: null, policies: [] }
}

/** @throws ApiError 400 when the listener cannot use the pool */
export function withDefaultPool(made: NewListener, pool: UsedPool & { id: string }): NewListener {
  checkPoolUse(made.values.protocol, pool)
  return { ...made, defaultPoolId: pool.id }
}

/** @throws ApiError 400, or 409 for too many rules */
export function planPolicy(body: PolicyValues, rules: readonly RuleBody[]): NewPolicy {
  checkRuleCount(rules.length)
  return { id: randomUUID(), values: completePolicy(body), rules: rules.map(planRule) }
}

/** @throws ApiError 400 */
export function planRule(body: RuleBody): NewRule {
  return { id: randomUUID(), values: completeRule(body) }
}

export function planPool({ members, healthmonitor, ...body }: PoolBody, settings: LoadBalancerSettings): NewPool {
  const values = completePool(settings, body)
  const duplicate = firstRepeated(members, ({ address, protocol_port }) => `${address} ${protocol_port}`)
  if (duplicate !== undefined) throw conflict(duplicateMember(duplicate))
  return {
    id: randomUUID(),
    values,
    members: members.map(body => ({ id: randomUUID(), values: body })),
    monitor: healthmonitor === null ? null : planMonitor(healthmonitor, values.protocol, settings),
  }
}

export function planMonitor(body: MonitorBody, poolProtocol: string, settings: LoadBalancerSettings): NewMonitor {
  checkMonitorType(body.type, poolProtocol)
  return { id: randomUUID(), values: completeMonitor(settings, body) }
}

/** The bodies of all members. */
export const membersOf = ({ pools }: Pick<NewObjects, 'pools'>): MemberBody[] =>
  pools.flatMap(({ members }) => members.map(({ values }) => values))

/** @throws ApiError 501 for the first option that the provider does not support */
export function refuseUnsupportedObjects(provider: ProviderCapabilities, { pools, listeners }: NewObjects): void {
  for (const { values, policies } of listeners) {
    refuseUnsupported(provider, listener, values)
    for (const made of policies) refuseUnsupportedPolicy(provider, values.protocol, made)
  }
  for (const { values, members, monitor } of pools) {
    refuseUnsupported(provider, pool, values)
    for (const made of members) refuseUnsupported(provider, member, made.values)
    if (monitor !== null) refuseUnsupportedMonitor(provider, values.protocol, monitor)
  }
}

/** The same for a health monitor. Support also depends on the pool's protocol. @throws ApiError 501 */
export function refuseUnsupportedMonitor(
  provider: ProviderCapabilities,
  poolProtocol: string,
  { values }: NewMonitor,
): void {
  refuseUnsupported(provider, healthMonitor, { ...values, pool_protocol: poolProtocol })
}

/** The same for an L7 policy with its rules. Support also depends on the listener's protocol. @throws ApiError 501 */
export function refuseUnsupportedPolicy(
  provider: ProviderCapabilities,
  listenerProtocol: string,
  { values, rules }: NewPolicy,
): void {
  refuseUnsupported(provider, l7Policy, { ...values, listener_protocol: listenerProtocol })
  for (const made of rules) refuseUnsupported(provider, l7Rule, made.values)
}

export const duplicateListener = (protocol: string, port: number): string =>
  `Another Listener on this Load Balancer is already using protocol ${protocol} and protocol_port ${port}`

/**
 * Whether a body only names a pool defined elsewhere in the request. Attributes that always have a value do not
 * count.
 */
function isReference({
  name: _name,
  admin_state_up: _up,
  tls_enabled: _tls,
  deregistration_delay: _delay,
  ...rest
}: NestedPool): boolean {
  return Object.values(rest).every(
    value => value === null || value === '' || (Array.isArray(value) && value.length === 0),
  )
}

function requireProtocol(body: NestedPool): PoolBody {
  const { protocol, lb_algorithm } = body
  const path = body.name === '' ? 'pools' : `pools '${body.name}'`
  if (protocol === null) throw badRequest(invalidInput(`${path} protocol`, null, MISSING))
  if (lb_algorithm === null) throw badRequest(invalidInput(`${path} lb_algorithm`, null, MISSING))
  return { ...body, protocol, lb_algorithm }
}
