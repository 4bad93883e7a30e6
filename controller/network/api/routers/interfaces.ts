import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, many } from '../../../database/query.js'
import { assignments, sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import { ROUTER_PORT_OWNER } from '../../driver.js'
import { claimAddress } from '../../local/allocation.js'
import { attribute, parseAttributes } from '../body.js'
import { isUsedByControllers } from '../networks/networks.js'
import { subnetSource } from '../networks/subnets.js'
import { badRequest, conflict, invalidInput, NeutronError, notAuthorized, notFound } from '../neutron-error.js'
import { portSource } from '../ports/port-source.js'
import { CHANGED, changeAt, lockOwned, owns, type Target } from '../resource.js'
import { selectOne } from '../select.js'
import {
  addLeg,
  hasFloatingIps,
  insertLeg,
  legsOf,
  refuseIfRouted,
  refuseOverlap,
  removeLeg,
  touchRouter,
} from './legs.js'
import { type RouterRow, routerSource } from './router-source.js'

/** The body of add_router_interface and remove_router_interface. */
export const interfaceSchema = z.strictObject({ subnet_id: attribute.id, port_id: attribute.id }).partial()

type Requested = z.output<typeof interfaceSchema>

/** A router's interface, as both calls answer it. */
export type Interface = {
  id: string
  tenant_id: string
  project_id: string
  port_id: string
  network_id: string
  subnet_id: string
  subnet_ids: string[]
}

/** Connects a subnet, by its gateway address, or an unused port. @throws NeutronError 400, 403, 404, 409 */
export const addInterface = (database: Database, target: Target, attributes: unknown): Promise<Interface> =>
  changeAt(database, routerSource, target, async trx => {
    const { caller, id } = target
    const router = await lockOwned(trx, routerSource, caller, id, 'add_router_interface')
    const requested = requestedInterface(attributes)
    if (requested.port_id !== undefined && requested.subnet_id !== undefined) {
      throw badRequest('router', 'Cannot specify both subnet-id and port-id')
    }
    const portId =
      requested.port_id === undefined
        ? await connectSubnet(trx, caller, router, requested.subnet_id!)
        : await connectPort(trx, caller, router, requested.port_id)
    await refuseOverlap(trx, id, portId)
    await touchRouter(trx, id)
    return interfaceOf(trx, router, portId)
  })

/** Disconnects an interface and deletes its port. @throws NeutronError 400, 404, 409 */
export const removeInterface = (database: Database, target: Target, attributes: unknown): Promise<Interface> =>
  changeAt(database, routerSource, target, async trx => {
    const { caller, id } = target
    const router = await lockOwned(trx, routerSource, caller, id, 'remove_router_interface')
    const portId = await findInterface(trx, id, requestedInterface(attributes))
    const removed = await interfaceOf(trx, router, portId)
    if (await hasFloatingIps(trx, id, removed.subnet_ids)) {
      throw conflict(
        'RouterInterfaceInUseByFloatingIP',
        `Router interface for subnet ${removed.subnet_id} on router ${id} cannot be deleted, as it is required by one or more floating IPs.`,
      )
    }
    await refuseIfRouted(trx, id, portId)
    await removeLeg(trx, portId)
    await touchRouter(trx, id)
    return removed
  })

/** @throws NeutronError 400 if a request names neither a subnet nor a port */
export function requestedInterface(attributes: unknown): Requested {
  const requested = parseAttributes(interfaceSchema, attributes)
  if (requested.port_id === undefined && requested.subnet_id === undefined) {
    throw badRequest('router', 'Either subnet_id or port_id must be specified')
  }
  return requested
}

/**
 * A router on somebody else's network could send there with any address, and as its gateway it would see what the others
 * send. So only the network's owner connects it.
 */
function requireNetworkRights(caller: Caller, networkProjectId: string, builtIn: string | null): void {
  if (!owns(caller, { project_id: networkProjectId })) throw notAuthorized('add_router_interface')
  if (builtIn === 'management') throw invalidInput('the management network of the load balancer service has no router')
}

async function connectSubnet(trx: Knex, caller: Caller, router: RouterRow, subnetId: string): Promise<string> {
  const subnet = await selectOne(trx, subnetSource, caller, subnetId)
  if (subnet === null) throw notFound('subnet', subnetId)
  requireNetworkRights(caller, subnet.network_project_id, subnet.network_built_in)
  const { gateway_ip: gateway, network_id: networkId } = subnet
  if (gateway === null) throw badRequest('router', 'Subnet for router interface must have a gateway IP')
  if ((await legsOf(trx, router.id)).some(leg => leg.subnet_id === subnetId)) {
    throw badRequest('router', `Router already has a port on subnet ${subnetId}`)
  }
  const id = await insertLeg(trx, router, networkId, ROUTER_PORT_OWNER.interface)
  if (isUsedByControllers(subnet.network_built_in) || !(await claimAddress(trx, subnetId, id, gateway))) {
    throw conflict(
      'IpAddressInUse',
      `Unable to complete operation for network ${networkId}. The IP address ${gateway} is in use.`,
    )
  }
  return id
}

async function connectPort(trx: Knex, caller: Caller, router: RouterRow, portId: string): Promise<string> {
  const port = await selectOne(trx, portSource, caller, portId, true)
  if (port === null) throw notFound('port', portId)
  if (!owns(caller, port)) throw notAuthorized('add_router_interface')
  requireNetworkRights(caller, port.network_project_id, port.network_built_in)
  if (port.device_id !== '' || port.device_owner !== '') {
    throw conflict(
      'PortInUse',
      `Unable to complete operation on port ${portId} for network ${port.network_id}. Port already has an attached device ${port.device_id}.`,
    )
  }
  if (port.fixed_ips.length === 0) throw badRequest('router', 'Router port must have at least one fixed IP')
  if (port.fixed_ips.filter(({ ip_address }) => !ip_address.includes(':')).length > 1) {
    throw badRequest('router', 'Cannot have multiple IPv4 subnets on router port')
  }
  const device = { device_id: router.id, device_owner: ROUTER_PORT_OWNER.interface, project_id: router.project_id }
  const values = assignments({ ...device, filtered: false, allowed_address_pairs: '[]', ...CHANGED })
  await execute(trx, sql`UPDATE port SET ${values} WHERE id = ${portId}`)
  await execute(trx, sql`DELETE FROM port_security_group WHERE port_id = ${portId}`)
  await addLeg(trx, router.id, portId, false)
  return portId
}

/** The port of the interface that a request names. */
async function findInterface(trx: Knex, routerId: string, { port_id, subnet_id }: Requested): Promise<string> {
  const legs = (await legsOf(trx, routerId)).filter(({ gateway }) => !gateway)
  const ofPort = legs.filter(leg => leg.port_id === port_id)
  if (port_id !== undefined && ofPort.length === 0) {
    throw new NeutronError(
      404,
      'RouterInterfaceNotFound',
      `Router ${routerId} does not have an interface with id ${port_id}`,
    )
  }
  const found = (port_id === undefined ? legs : ofPort).find(
    leg => subnet_id === undefined || leg.subnet_id === subnet_id,
  )
  if (found !== undefined) return found.port_id
  if (port_id === undefined) {
    throw new NeutronError(
      404,
      'RouterInterfaceNotFoundForSubnet',
      `Router ${routerId} has no interface on subnet ${subnet_id}`,
    )
  }
  throw new NeutronError(
    400,
    'SubnetMismatchForPort',
    `Subnet on port ${port_id} does not match the requested subnet ${subnet_id}.`,
  )
}

async function interfaceOf(trx: Knex, { id, project_id }: RouterRow, portId: string): Promise<Interface> {
  const rows = await many(
    trx,
    sql<{ network_id: string; subnet_id: string }>`
      SELECT port.network_id, fixed_ip.subnet_id FROM port JOIN fixed_ip ON fixed_ip.port_id = port.id
       WHERE port.id = ${portId} ORDER BY fixed_ip.ordinal`,
  )
  const [first] = rows
  if (first === undefined) throw new Error(`Port ${portId} of router ${id} has no address`)
  return {
    id,
    tenant_id: project_id,
    project_id,
    port_id: portId,
    network_id: first.network_id,
    subnet_id: first.subnet_id,
    subnet_ids: [...new Set(rows.map(({ subnet_id }) => subnet_id))],
  }
}
