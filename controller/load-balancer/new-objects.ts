import { randomUUID } from 'node:crypto'
import { badRequest, conflict } from '../http/errors.js'
import { MISSING } from './attributes.js'
import { type OfferedProvider, refuseUnsupported } from './capabilities.js'
import { invalid, missing } from './faults.js'
import { healthMonitor } from './health-monitors/resource.js'
import { checkMonitorType, completeMonitor } from './health-monitors/rules.js'
import { invalidInput } from './input.js'
import { listener } from './listeners/resource.js'
import { checkListener, checkPoolProtocol, transportOf } from './listeners/rules.js'
import { member } from './members/resource.js'
import { checkMember, duplicateMember } from './members/rules.js'
import type { ListenerBody, MemberBody, MonitorBody, NestedPool, PoolBody } from './nested.js'
import { pool } from './pools/resource.js'

/** Objects that are about to be made: bodies that were checked, with ids and references among them. */
export type NewMember = { id: string; values: MemberBody }
export type NewMonitor = { id: string; values: MonitorBody & { max_retries_down: number } }
export type NewPool = {
  id: string
  values: Omit<PoolBody, 'members' | 'healthmonitor'>
  members: NewMember[]
  monitor: NewMonitor | null
}
export type NewListener = {
  id: string
  values: Omit<ListenerBody, 'default_pool' | 'default_pool_id'>
  transport: string
  defaultPoolId: string | null
}
export type NewObjects = { pools: NewPool[]; listeners: NewListener[] }

/**
 * Lays out the listeners and pools of one request. A nested pool that holds only a name stands for the one that the request defines by
 * that name. Pure.
 * @throws ApiError 400, 404 or 409 for what the rules forbid
 */
export function planObjects(listeners: readonly ListenerBody[], pools: readonly NestedPool[]): NewObjects {
  const nested = listeners.flatMap(({ default_pool }) => (default_pool === null ? [] : [default_pool]))
  if (nested.some(({ name }) => name === '')) throw invalid('Pools named in a listener must have a name.')
  const definitions = [...pools, ...nested.filter(body => !isReference(body))]
  const names = definitions.map(({ name }) => name).filter(name => name !== '')
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined)
    throw invalid(`Pool names must be unique when creating a fully populated load balancer: ${repeated}`)

  const planned = new Map<NestedPool, NewPool>(definitions.map(body => [body, planPool(requireProtocol(body))]))
  const byName = new Map([...planned.values()].map(made => [made.values.name, made]))
  const newListeners = listeners.map(body => {
    const { default_pool: nestedPool, default_pool_id: poolId, ...rest } = body
    // There is no pool yet that an id could name.
    if (poolId !== null) throw missing('Pool', poolId)
    const defaultPool = nestedPool === null ? null : (planned.get(nestedPool) ?? byName.get(nestedPool.name))
    if (defaultPool === undefined) throw invalid(`Pool ${nestedPool?.name} is referenced but not defined.`)
    return planListener(
      rest,
      defaultPool === null ? null : { id: defaultPool.id, protocol: defaultPool.values.protocol },
    )
  })
  const ports = newListeners.map(({ transport, values }) => `${transport} ${values.protocol_port}`)
  const clash = newListeners.find((_, index) => ports.indexOf(ports[index]!) !== index)
  if (clash !== undefined) throw conflict(duplicateListener(clash.values.protocol, clash.values.protocol_port))
  return { pools: [...planned.values()], listeners: newListeners }
}

export function planListener(
  body: Omit<ListenerBody, 'default_pool' | 'default_pool_id'>,
  defaultPool: { id: string; protocol: string } | null,
): NewListener {
  checkListener(body.protocol, body)
  if (defaultPool !== null) checkPoolProtocol(body.protocol, defaultPool.protocol)
  return {
    id: randomUUID(),
    values: body,
    transport: transportOf(body.protocol),
    defaultPoolId: defaultPool?.id ?? null,
  }
}

export function planPool({ members, healthmonitor, ...values }: PoolBody): NewPool {
  for (const body of members) checkMember(body)
  const keys = members.map(({ address, protocol_port }) => `${address} ${protocol_port}`)
  const twice = members.find((_, index) => keys.indexOf(keys[index]!) !== index)
  if (twice !== undefined) throw conflict(duplicateMember(twice))
  return {
    id: randomUUID(),
    values,
    members: members.map(body => ({ id: randomUUID(), values: body })),
    monitor: healthmonitor === null ? null : planMonitor(healthmonitor, values.protocol),
  }
}

export function planMonitor(body: MonitorBody, poolProtocol: string): NewMonitor {
  checkMonitorType(body.type, poolProtocol)
  return { id: randomUUID(), values: completeMonitor(body) }
}

/** @throws ApiError 501 for the first option, of any of the objects, that the provider cannot carry out */
export function refuseUnsupportedObjects(provider: OfferedProvider, { pools, listeners }: NewObjects): void {
  for (const { values } of listeners) refuseUnsupported(provider, listener, values)
  for (const { values, members, monitor } of pools) {
    refuseUnsupported(provider, pool, values)
    for (const made of members) refuseUnsupported(provider, member, made.values)
    if (monitor !== null) refuseUnsupported(provider, healthMonitor, monitor.values)
  }
}

export const duplicateListener = (protocol: string, port: number): string =>
  `Another Listener on this Load Balancer is already using protocol ${protocol} and protocol_port ${port}`

/** Only a name, at most with switches that every pool has: the name of a pool that is defined elsewhere in the request. */
function isReference({ name: _name, admin_state_up: _up, tls_enabled: _tls, ...rest }: NestedPool): boolean {
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
