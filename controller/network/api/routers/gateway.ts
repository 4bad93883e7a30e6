import type { Knex } from 'knex'
import * as z from 'zod'
import { execute } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import { ROUTER_PORT_OWNER } from '../../driver.js'
import type { SharedAddresses } from '../../local/shared-addresses.js'
import { isAdmin } from '../../visibility.js'
import { attribute } from '../body.js'
import { networkSource } from '../networks/networks.js'
import { badRequest, conflict, notAuthorized, notFound } from '../neutron-error.js'
import { placeFixedIps, replaceFixedIps } from '../ports/fixed-ips.js'
import { selectOne } from '../select.js'
import { hasFloatingIps, insertLeg, refuseIfRouted, refuseOverlap, removeLeg } from './legs.js'
import type { RouterRow } from './router-source.js'

/** The attribute external_gateway_info; an empty object clears the gateway. */
export const gatewayInfo = z
  .strictObject({
    network_id: attribute.id.nullable(),
    enable_snat: attribute.boolean,
    external_fixed_ips: z
      .array(z.strictObject({ subnet_id: attribute.id, ip_address: attribute.address }).partial())
      .max(5, { error: 'the maximum is 5 addresses' }),
  })
  .partial()
  .nullable()

type GatewayInfo = z.output<typeof gatewayInfo>

/** As in Neutron, only administrators choose a gateway's addresses, and whether it translates. @throws NeutronError 403 */
export function requireGatewayRights(caller: Caller, info: GatewayInfo, verb: 'create' | 'update'): void {
  if (info === null || isAdmin(caller)) return
  for (const name of ['enable_snat', 'external_fixed_ips'] as const) {
    if (info[name] !== undefined) throw notAuthorized(`${verb}_router:external_gateway_info:${name}`)
  }
}

/**
 * Sets, changes or clears the gateway of a router whose row is locked.
 * @throws NeutronError 400 for a network that is not external or an address that does not fit, 404 for a network that
 *   the caller may not see, 409 if floating IPs or routes need the present gateway or no address is free
 */
export async function changeGateway(
  trx: Knex,
  caller: Caller,
  router: Pick<RouterRow, 'id' | 'project_id' | 'gateway'>,
  info: GatewayInfo,
  rules: SharedAddresses,
): Promise<void> {
  const networkId = info?.network_id ?? null
  if (networkId === null) return clearGateway(trx, router)
  const network = await selectOne(trx, networkSource, caller, networkId)
  if (network === null) throw notFound('network', networkId)
  if (!network.external) throw badRequest('router', `Network ${networkId} is not an external network`)
  const portId = await gatewayPort(trx, router, networkId, info?.external_fixed_ips, rules)
  await refuseOverlap(trx, router.id, portId)
  await execute(trx, sql`UPDATE router SET enable_snat = ${info?.enable_snat ?? true} WHERE id = ${router.id}`)
}

type FixedIps = Parameters<typeof replaceFixedIps>[2]

/** The router's port on the network: the present one, or a new one in its place. */
async function gatewayPort(
  trx: Knex,
  router: Pick<RouterRow, 'id' | 'project_id' | 'gateway'>,
  networkId: string,
  fixedIps: FixedIps | undefined,
  rules: SharedAddresses,
): Promise<string> {
  const { gateway, project_id: projectId } = router
  if (gateway?.network_id !== networkId) {
    await clearGateway(trx, router)
    const id = await insertLeg(trx, router, networkId, ROUTER_PORT_OWNER.gateway)
    await placeFixedIps(trx, { id, networkId, projectId }, fixedIps, rules)
    return id
  }
  const port = { id: gateway.port_id, networkId, projectId, fixedIps: gateway.fixed_ips }
  if (fixedIps !== undefined) await replaceFixedIps(trx, port, fixedIps, rules)
  return port.id
}

export async function clearGateway(trx: Knex, { id, gateway }: Pick<RouterRow, 'id' | 'gateway'>): Promise<void> {
  if (gateway === null) return
  if (await hasFloatingIps(trx, id, null)) {
    throw conflict(
      'RouterExternalGatewayInUseByFloatingIp',
      `Gateway cannot be updated for router ${id}, since a gateway to external network ${gateway.network_id} is required by one or more floating IPs.`,
    )
  }
  await refuseIfRouted(trx, id, gateway.port_id)
  await removeLeg(trx, gateway.port_id)
}
