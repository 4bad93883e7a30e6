import type { Knex } from 'knex'
import { maybeOne } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import type { NetworkDriver } from '../../../network/driver.js'
import { invalid, missingReference } from '../../schema/faults.js'

/**
 * Looks up the security groups and the QoS policy of a VIP, with the caller's rights.
 * @throws ApiError 400 when one does not exist or the deployment does not support it
 */
export async function checkVipOptions(
  network: NetworkDriver,
  caller: Caller,
  { vip_sg_ids = [], vip_qos_policy_id = null }: { vip_sg_ids?: readonly string[]; vip_qos_policy_id?: string | null },
): Promise<void> {
  for (const id of vip_sg_ids) {
    const found = network.findSecurityGroup === null ? null : await network.findSecurityGroup(caller, id)
    if (found === null) throw missingReference('Security Group', id)
  }
  if (vip_qos_policy_id === null) return
  if (network.findQosPolicy === null) throw invalid('VIP QoS policy is not allowed in this deployment.')
  if ((await network.findQosPolicy(caller, vip_qos_policy_id)) === null) {
    throw missingReference('qos_policy', vip_qos_policy_id)
  }
}

/**
 * Rejects security groups for an SR-IOV VIP, and beside listeners with allowed_cidrs.
 * @param trx has locked the load balancer's row
 * @throws ApiError 400
 */
export async function checkSecurityGroups(trx: Knex, id: string, groups: readonly string[] = []): Promise<void> {
  if (groups.length === 0) return
  const row = await maybeOne(
    trx,
    sql<{ vip_vnic_type: string }>`SELECT vip_vnic_type FROM load_balancer WHERE id = ${id}`,
  )
  if (row?.vip_vnic_type === 'direct') throw invalid('vip_sg_ids cannot be used with an SR-IOV VIP.')
  const restricted = await maybeOne(
    trx,
    sql<{ id: string }>`
      SELECT id FROM listener
       WHERE load_balancer_id = ${id} AND change <> 'delete' AND allowed_cidrs IS NOT NULL LIMIT 1`,
  )
  if (restricted !== undefined) {
    throw invalid(
      `vip_sg_ids cannot be used on a load balancer with allowed_cidrs: listener ${restricted.id} has them.`,
    )
  }
}
