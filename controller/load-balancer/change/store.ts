import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import type { Transaction } from '../../database/transaction.js'
import { conflict } from '../../http/errors.js'
import { healthMonitor } from '../objects/health-monitors/resource.js'
import { l7Policy } from '../objects/l7-policies/resource.js'
import { l7Rule } from '../objects/l7-rules/resource.js'
import { listener } from '../objects/listeners/resource.js'
import { member } from '../objects/members/resource.js'
import { duplicateMember } from '../objects/members/rules.js'
import { pool } from '../objects/pools/resource.js'
import { columnsOf } from '../schema/resource.js'
import {
  duplicateListener,
  type NewListener,
  type NewMember,
  type NewMonitor,
  type NewObjects,
  type NewPolicy,
  type NewPool,
  type NewRule,
} from '../tree/new-objects.js'
import { type ChangedLoadBalancer, insertRows } from './change.js'

type Above = Pick<ChangedLoadBalancer, 'id' | 'project_id' | 'generation' | 'limits'>

/** Stores new objects, a few statements per kind. @throws ApiError 409 when another object has their place */
export async function storeObjects(trx: Transaction, above: Above, { pools, listeners }: NewObjects): Promise<void> {
  await storePools(trx, above, pools)
  await storeListeners(trx, above, listeners)
  await storePolicies(
    trx,
    above,
    listeners.flatMap(({ id, policies }) => policies.map(policy => ({ listenerId: id, policy }))),
  )
}

export async function storePools(trx: Transaction, above: Above, pools: readonly NewPool[]): Promise<void> {
  await insertRows(trx, above, 'pool', pools, ({ id, values, members }) => ({
    ...columnsOf(pool, values),
    ...belonging(id, above),
    last_server_number: members.length,
  }))
  await storeMonitors(
    trx,
    above,
    pools.flatMap(({ id, monitor }) => (monitor === null ? [] : [{ poolId: id, monitor }])),
  )
  await storeMembers(
    trx,
    above,
    pools.flatMap(({ id, members, monitor }) =>
      members.map((made, index) => ({
        poolId: id,
        member: made,
        serverNumber: index + 1,
        monitored: monitor !== null,
      })),
    ),
  )
}

export async function storeListeners(trx: Transaction, above: Above, listeners: readonly NewListener[]): Promise<void> {
  const refused = await insertRows(trx, above, 'listener', listeners, ({ id, values, transport, defaultPoolId }) => ({
    ...columnsOf(listener, values),
    ...belonging(id, above),
    protocol: values.protocol,
    protocol_port: values.protocol_port,
    transport,
    default_pool_id: defaultPoolId,
  }))
  if (refused === undefined) return
  const { transport, protocol_port } = refused
  const holder = await maybeOne(
    trx,
    sql<{ protocol: string }>`
      SELECT protocol FROM listener
       WHERE load_balancer_id = ${above.id} AND transport = ${transport} AND protocol_port = ${protocol_port}
         AND change <> 'delete'`,
  )
  throw conflict(duplicateListener(holder?.protocol ?? refused.protocol, protocol_port))
}

export type PlacedMember = { poolId: string; member: NewMember; serverNumber: number; monitored: boolean }

/**
 * A member is NO_MONITOR until its pool has a monitor; then it is OFFLINE until the first report.
 * @param replaced how many members the same request removes
 */
export async function storeMembers(
  trx: Transaction,
  above: Above,
  members: readonly PlacedMember[],
  replaced = 0,
): Promise<void> {
  const refused = await insertRows(
    trx,
    above,
    'member',
    members,
    ({ poolId, member: { id, values }, serverNumber, monitored }) => ({
      ...columnsOf(member, values),
      ...belonging(id, above),
      address: values.address,
      protocol_port: values.protocol_port,
      pool_id: poolId,
      server_number: serverNumber,
      vnic_type: values.request_sriov ? 'direct' : 'normal',
      operating_status: monitored ? 'OFFLINE' : 'NO_MONITOR',
    }),
    replaced,
  )
  if (refused !== undefined) throw conflict(duplicateMember(refused))
}

export async function storeMonitors(
  trx: Transaction,
  above: Above,
  monitors: readonly { poolId: string; monitor: NewMonitor }[],
): Promise<void> {
  const refused = await insertRows(trx, above, 'health_monitor', monitors, ({ poolId, monitor: { id, values } }) => ({
    ...columnsOf(healthMonitor, values),
    ...belonging(id, above),
    pool_id: poolId,
  }))
  if (refused !== undefined) throw conflict('This pool already has a health monitor')
}

/** Positions are stored as they are given. */
export async function storePolicies(
  trx: Transaction,
  above: Above,
  policies: readonly { listenerId: string; policy: NewPolicy }[],
): Promise<void> {
  await insertRows(trx, above, 'l7_policy', policies, ({ listenerId, policy: { id, values } }) => ({
    ...columnsOf(l7Policy, values),
    ...belonging(id, above),
    listener_id: listenerId,
  }))
  await storeRules(
    trx,
    above,
    policies.flatMap(({ policy: { id, rules } }) => rules.map(rule => ({ policyId: id, rule }))),
  )
}

export async function storeRules(
  trx: Transaction,
  above: Above,
  rules: readonly { policyId: string; rule: NewRule }[],
): Promise<void> {
  await insertRows(trx, above, 'l7_rule', rules, ({ policyId, rule: { id, values } }) => ({
    ...columnsOf(l7Rule, values),
    ...belonging(id, above),
    l7_policy_id: policyId,
  }))
}

const belonging = (id: string, above: Above) => ({ id, load_balancer_id: above.id, project_id: above.project_id })
