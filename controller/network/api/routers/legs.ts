import type { Knex } from 'knex'
import { execute, many, one } from '../../../database/query.js'
import { assignments, insertion, sql } from '../../../database/sql.js'
import { ROUTER_PORT_OWNER } from '../../driver.js'
import { insertPort } from '../../local/ports.js'
import { badRequest, conflict } from '../neutron-error.js'
import { CHANGED } from '../resource.js'

/** An address of a router on a subnet. */
export type Leg = { port_id: string; gateway: boolean; subnet_id: string; cidr: string; address: string }

/** The subnets on which a router has an address. */
export const legsOf = (trx: Knex, routerId: string): Promise<Leg[]> =>
  many(
    trx,
    sql<Leg>`
      SELECT router_port.port_id, router_port.gateway, fixed_ip.subnet_id, subnet.cidr::text AS cidr,
             host(fixed_ip.address) AS address
        FROM router_port
        JOIN fixed_ip ON fixed_ip.port_id = router_port.port_id
        JOIN subnet ON subnet.id = fixed_ip.subnet_id
       WHERE router_port.router_id = ${routerId} ORDER BY fixed_ip.ordinal`,
  )

/** Makes a port for a router, without addresses. @returns its ID */
export async function insertLeg(
  trx: Knex,
  router: { id: string; project_id: string },
  networkId: string,
  owner: typeof ROUTER_PORT_OWNER.gateway | typeof ROUTER_PORT_OWNER.interface,
): Promise<string> {
  const id = await insertPort(trx, {
    network_id: networkId,
    project_id: router.project_id,
    name: '',
    device_id: router.id,
    device_owner: owner,
    ensured_name: null,
  })
  if (id === null) throw new Error(`Router ${router.id} got no port on network ${networkId}`)
  await addLeg(trx, router.id, id, owner === ROUTER_PORT_OWNER.gateway)
  return id
}

export const addLeg = (trx: Knex, router_id: string, port_id: string, gateway: boolean): Promise<number> =>
  execute(trx, sql`INSERT INTO router_port ${insertion([{ port_id, router_id, gateway }])}`)

/** Removes a port of a router, with its addresses. */
export async function removeLeg(trx: Knex, portId: string): Promise<void> {
  await execute(trx, sql`DELETE FROM router_port WHERE port_id = ${portId}`)
  await execute(trx, sql`DELETE FROM port WHERE id = ${portId}`)
}

/**
 * Refuses a new leg on a subnet that the router has already, or that overlaps one of its subnets: it could not tell
 * where to send a packet.
 * @throws NeutronError 400
 */
export async function refuseOverlap(trx: Knex, routerId: string, portId: string): Promise<void> {
  type Pair = { subnet_id: string; cidr: string; other_id: string; other_cidr: string }
  const pairs = await many(
    trx,
    sql<Pair>`
      SELECT added.id AS subnet_id, added.cidr::text AS cidr, present.id AS other_id, present.cidr::text AS other_cidr
        FROM fixed_ip added_ip JOIN subnet added ON added.id = added_ip.subnet_id
        JOIN router_port ON router_port.router_id = ${routerId} AND router_port.port_id <> ${portId}
        JOIN fixed_ip present_ip ON present_ip.port_id = router_port.port_id
        JOIN subnet present ON present.id = present_ip.subnet_id
       WHERE added_ip.port_id = ${portId} AND added.cidr && present.cidr LIMIT 1`,
  )
  const [found] = pairs
  if (found === undefined) return
  if (found.subnet_id === found.other_id) {
    throw badRequest('router', `Router already has a port on subnet ${found.subnet_id}`)
  }
  throw badRequest(
    'router',
    `Cidr ${found.cidr} of subnet ${found.subnet_id} overlaps with cidr ${found.other_cidr} of subnet ${found.other_id}`,
  )
}

/** Refuses to remove a leg through which an extra route leads. @throws NeutronError 409 */
export async function refuseIfRouted(trx: Knex, routerId: string, portId: string): Promise<void> {
  const used = await many(
    trx,
    sql<{ subnet_id: string }>`
      SELECT fixed_ip.subnet_id
        FROM router, jsonb_to_recordset(router.routes) AS route (nexthop inet), fixed_ip
        JOIN subnet ON subnet.id = fixed_ip.subnet_id
       WHERE router.id = ${routerId} AND fixed_ip.port_id = ${portId} AND route.nexthop <<= subnet.cidr LIMIT 1`,
  )
  const [found] = used
  if (found === undefined) return
  throw conflict(
    'RouterInterfaceInUseByRoute',
    `Router interface for subnet ${found.subnet_id} on router ${routerId} cannot be deleted, as it is required by one or more routes.`,
  )
}

/** Raises the revision of a router whose legs change. */
export const touchRouter = (trx: Knex, id: string): Promise<number> =>
  execute(trx, sql`UPDATE router SET ${assignments(CHANGED)} WHERE id = ${id}`)

/** Whether floating IPs need this router on one of these subnets; null for any subnet. */
export async function hasFloatingIps(
  trx: Knex,
  routerId: string,
  subnetIds: readonly string[] | null,
): Promise<boolean> {
  const { used } = await one(
    trx,
    sql<{ used: boolean }>`
      SELECT EXISTS (SELECT FROM floating_ip WHERE router_id = ${routerId}
                        AND (${subnetIds === null} OR fixed_subnet_id = ANY(${subnetIds ?? []}::uuid[]))) AS used`,
  )
  return used
}
