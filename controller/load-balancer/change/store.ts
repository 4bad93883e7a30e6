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

type Parent = Pick<ChangedLoadBalancer, 'id' | 'project_id' | 'generation' | 'limits'>

/**
 * Stores new objects with a few statements per kind.
 * @throws ApiError 409 when one conflicts with an existing object
 */
export async function storeObjects(trx: Transaction, parent: Parent, { pools, listeners }: NewObjects): Promise<void> {
  await storePools(trx, parent, pools)
  await storeListeners(trx, parent, listeners)
  await storePolicies(
    trx,
    parent,
    listeners.flatMap(({ id, policies }) => policies.map(policy => ({ listenerId: id, policy }))),
  )
}

export async function storePools(trx: Transaction, parent: Parent, pools: readonly NewPool[]): Promise<void> {
  await insertRows(trx, parent, 'pool', pools, ({ id, values, members }) => ({
    ...columnsOf(pool, values),
    ...parentColumns(id, parent),
    last_server_number: members.length,
  }))
  await storeMonitors(
    trx,
    parent,
    pools.flatMap(({ id, monitor }) => (monitor === null ? [] : [{ poolId: id, monitor }])),
  )
  await storeMembers(
    trx,
    parent,
    pools.flatMap(({ id, members, monitor }) =>
      members.map((newMember, index) => ({
        poolId: id,
        member: newMember,
        serverNumber: index + 1,
        monitored: monitor !== null,
      })),
    ),
  )
}

export async function storeListeners(
  trx: Transaction,
  parent: Parent,
  listeners: readonly NewListener[],
): Promise<void> {
  const rejected = await insertRows(trx, parent, 'listener', listeners, ({ id, values, transport, defaultPoolId }) => ({
    ...columnsOf(listener, values),
    ...parentColumns(id, parent),
    protocol: values.protocol,
    protocol_port: values.protocol_port,
    transport,
    default_pool_id: defaultPoolId,
  }))
  if (rejected === undefined) return
  const { transport, protocol_port } = rejected
  const holder = await maybeOne(
    trx,
    sql<{ protocol: string }>`
      SELECT protocol FROM listener
       WHERE load_balancer_id = ${parent.id} AND transport = ${transport} AND protocol_port = ${protocol_port}
         AND change <> 'delete'`,
  )
  throw conflict(duplicateListener(holder?.protocol ?? rejected.protocol, protocol_port))
}

export type PlacedMember = { poolId: string; member: NewMember; serverNumber: number; monitored: boolean }

/**
 * Stores members: NO_MONITOR if the pool has no health monitor, otherwise OFFLINE until the first report.
 * @param replaced number of members that the same request removes
 */
export async function storeMembers(
  trx: Transaction,
  parent: Parent,
  members: readonly PlacedMember[],
  replaced = 0,
): Promise<void> {
  const rejected = await insertRows(
    trx,
    parent,
    'member',
    members,
    ({ poolId, member: { id, values }, serverNumber, monitored }) => ({
      ...columnsOf(member, values),
      ...parentColumns(id, parent),
      address: values.address,
      protocol_port: values.protocol_port,
      pool_id: poolId,
      server_number: serverNumber,
      vnic_type: values.request_sriov ? 'direct' : 'normal',
      operating_status: monitored ? 'OFFLINE' : 'NO_MONITOR',
    }),
    replaced,
  )
  if (rejected !== undefined) throw conflict(duplicateMember(rejected))
}

export async function storeMonitors(
  trx: Transaction,
  parent: Parent,
  monitors: readonly { poolId: string; monitor: NewMonitor }[],
): Promise<void> {
  const rejected = await insertRows(trx, parent, 'health_monitor', monitors, ({ poolId, monitor: { id, values } }) => ({
    ...columnsOf(healthMonitor, values),
    ...parentColumns(id, parent),
    pool_id: poolId,
  }))
  if (rejected !== undefined) throw conflict('This pool already has a health monitor')
}

/** Stores positions as given. */
export async function storePolicies(
  trx: Transaction,
  parent: Parent,
  policies: readonly { listenerId: string; policy: NewPolicy }[],
): Promise<void> {
  await insertRows(trx, parent, 'l7_policy', policies, ({ listenerId, policy: { id, values } }) => ({
    ...columnsOf(l7Policy, values),
    ...parentColumns(id, parent),
    listener_id: listenerId,
  }))
  await storeRules(
    trx,
    parent,
    policies.flatMap(({ policy: { id, rules } }) => rules.map(rule => ({ policyId: id, rule }))),
  )
}

export async function storeRules(
  trx: Transaction,
  parent: Parent,
  rules: readonly { policyId: string; rule: NewRule }[],
): Promise<void> {
  await insertRows(trx, parent, 'l7_rule', rules, ({ policyId, rule: { id, values } }) => ({
    ...columnsOf(l7Rule, values),
    ...parentColumns(id, parent),
    l7_policy_id: policyId,
  }))
}

const parentColumns = (id: string, parent: Parent) => ({
  id,
  load_balancer_id: parent.id,
  project_id: parent.project_id,
})
