import { isIP } from 'node:net'
import type { Knex } from 'knex'
import { maybeOne } from '../../database/query.js'
import { sql } from '../../database/sql.js'
import { notImplemented } from '../../http/errors.js'
import { eachInSlices } from '../../process/slices.js'
import { canonicalAddress } from '../objects/members/rules.js'
import { isDatagram } from '../objects/protocols.js'
import type { ProviderCapabilities } from '../schema/capabilities.js'
import { invalid } from '../schema/faults.js'
import type { NewObjects } from './new-objects.js'

/** Attributes of new or changed objects that must be compatible with their load balancer. */
export type Constraints = {
  listeners: { allowed_cidrs: readonly string[] | null }[]
  pools: { protocol: string; members: { address: string; request_sriov: boolean }[] }[]
}

export const constraintsOf = ({ listeners, pools }: NewObjects): Constraints => ({
  listeners: listeners.map(({ values }) => values),
  pools: pools.map(({ values: { protocol }, members }) => ({ protocol, members: members.map(({ values }) => values) })),
})

type Facts = {
  vip_address: string
  additional_vips: { ip_address: string }[]
  vip_sg_ids: string[]
  allows_sriov_members: boolean
}

/**
 * Checks new objects against the VIPs, the security groups and the flavor of their load balancer, whose row the
 * transaction has locked.
 * @throws ApiError 400, or 501 when the provider cannot reach a member because all VIPs have the other IP
 *   version
 */
export async function checkCompatibility(
  trx: Knex,
  loadBalancerId: string,
  provider: ProviderCapabilities,
  { listeners, pools }: Constraints,
): Promise<void> {
  const cidrs = listeners.flatMap(({ allowed_cidrs }) => allowed_cidrs ?? [])
  const sriov = pools.some(({ members }) => members.some(member => member.request_sriov))
  const { acrossIpVersions } = provider
  const bound = pools
    .filter(
      ({ protocol }) => acrossIpVersions === 'nothing' || (acrossIpVersions === 'streams' && isDatagram(protocol)),
    )
    .flatMap(({ members }) => members)
  const members = pools.flatMap(pool => pool.members)
  if (cidrs.length === 0 && members.length === 0) return

  const facts = await readFacts(trx, loadBalancerId)
  const vips = [facts.vip_address, ...facts.additional_vips.map(vip => vip.ip_address)]
  const versions = vips.map(isIP)
  await refuseLoop(vips, members)
  if (cidrs.length > 0 && facts.vip_sg_ids.length > 0) {
    throw invalid('allowed_cidrs cannot be used on a load balancer that has vip_sg_ids.')
  }
  const foreign = cidrs.find(cidr => !versions.includes(isIP(cidr.split('/')[0] ?? '')))
  if (foreign !== undefined) {
    throw invalid(`IP version of the allowed CIDR ${foreign} matches no VIP address of the load balancer.`)
  }
  if (sriov && !facts.allows_sriov_members) {
    throw invalid('The flavor of the load balancer does not allow SR-IOV members.')
  }
  const unreachable = bound.find(({ address }) => !versions.includes(isIP(address)))
  if (unreachable !== undefined) {
    throw notImplemented(
      `Provider '${provider.name}' does not support a requested option: Mixing IPv4 and IPv6${acrossIpVersions === 'nothing' ? '' : ' for UDP and SCTP'}: member ${unreachable.address}; give the load balancer an additional VIP of its IP version`,
    )
  }
}

/**
 * Rejects a member at a VIP of its own load balancer, which would send requests in a loop.
 * @throws ApiError 400
 */
async function refuseLoop(vips: readonly string[], members: readonly { address: string }[]): Promise<void> {
  const own = new Set(vips.map(canonicalAddress))
  await eachInSlices(members, ({ address }) => {
    if (own.has(canonicalAddress(address)))
      throw invalid(`Member address ${address} is a VIP of its own load balancer.`)
  })
}

/** Flavor data is the text of a JSON object. */
async function readFacts(trx: Knex, loadBalancerId: string): Promise<Facts> {
  const facts = await maybeOne(
    trx,
    sql<Facts>`
     SELECT lb.vip_address, lb.additional_vips, lb.vip_sg_ids,
            coalesce((profile.flavor_data::jsonb ->> 'allow_member_sriov')::boolean, false) AS allows_sriov_members
       FROM load_balancer lb
       LEFT JOIN flavor ON flavor.id = lb.flavor_id
       LEFT JOIN flavor_profile profile ON profile.id = flavor.flavor_profile_id
      WHERE lb.id = ${loadBalancerId}`,
  )
  if (facts === undefined) throw new Error(`Load balancer ${loadBalancerId} vanished while its row was locked`)
  return facts
}
