import type { Database } from '../../database/connection.js'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { notImplemented } from '../../http/errors.js'
import { isIn } from '../objects/load-balancers/vip-addresses.js'
import type { ProviderCapabilities } from '../schema/capabilities.js'
import type { Service } from '../schema/service.js'

type Placed = { address: string; subnet_id: string | null }

/**
 * Rejects members whose subnet is not known, for a provider that must know it.
 * @param vipNetworkId a member on one of its subnets need not name it
 * @throws ApiError 501
 */
export async function requireMemberSubnets(
  { network }: Pick<Service, 'network'>,
  { name, needsMemberSubnets = false }: ProviderCapabilities,
  vipNetworkId: string,
  members: readonly Placed[],
): Promise<void> {
  const open = needsMemberSubnets ? members.filter(({ subnet_id }) => subnet_id === null) : []
  if (open.length === 0) return
  const { subnetIds = [] } = (await network.network(vipNetworkId)) ?? {}
  const subnets = await network.subnets(subnetIds)
  const lost = open.find(({ address }) => !subnets.some(subnet => isIn(subnet, address)))
  if (lost === undefined) return
  throw notImplemented(
    `Provider '${name}' does not support a requested option: Member subnet_id null: ${lost.address} is not on the VIP's network, so name its subnet`,
  )
}

/** The same for new members of a load balancer that exists. @throws ApiError 501 */
export async function requireSubnetsBelow(
  service: Pick<Service, 'network'> & { database: Database },
  provider: ProviderCapabilities,
  loadBalancerId: string,
  members: readonly Placed[],
): Promise<void> {
  if (provider.needsMemberSubnets !== true || members.length === 0) return
  const row = await maybeOne(
    service.database,
    sql<{ vip_network_id: string | null }>`SELECT vip_network_id FROM load_balancer WHERE id = ${loadBalancerId}`,
  )
  // One that is gone is refused where it is changed.
  const vipNetworkId = row?.vip_network_id ?? null
  if (vipNetworkId !== null) await requireMemberSubnets(service, provider, vipNetworkId, members)
}
