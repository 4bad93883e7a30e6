import type { Knex } from 'knex'
import { execute, many, maybeOne, one } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import { isHiddenOwner } from '../../driver.js'
import { badRequest, conflict, NeutronError, notFound } from '../neutron-error.js'
import { type PortRow, portSource } from '../ports/port-source.js'
import { selectOne } from '../select.js'

type Requested = { port_id?: string | null | undefined; fixed_ip_address?: string | null | undefined }

type FixedIp = PortRow['fixed_ips'][number]

type FloatingFacts = {
  id: string
  project_id: string
  floating_network_id: string
  address: string
  port_id: string | null
}

/**
 * Leads a floating IP to an address of a port, or with null to nothing. Without a port in the request, it stays where
 * it is. The caller has locked its row.
 * @throws NeutronError 400 for a port of another project or an address it does not have, 404 for a port that the caller
 *   may not see or that no router connects with the external network, 409 if the address has a floating IP already
 */
export async function changeAssociation(
  trx: Knex,
  caller: Caller,
  id: string,
  { port_id, fixed_ip_address = null }: Requested,
): Promise<void> {
  if (port_id === undefined && fixed_ip_address === null) return
  const floating = await factsOf(trx, id)
  const portId = port_id === undefined ? floating.port_id : port_id
  if (portId !== null) return associate(trx, caller, floating, portId, fixed_ip_address)
  if (fixed_ip_address !== null) {
    throw badRequest('floatingip', 'fixed_ip_address cannot be specified without a port_id')
  }
  await execute(
    trx,
    sql`UPDATE floating_ip SET fixed_subnet_id = NULL, fixed_ip_address = NULL, router_id = NULL WHERE id = ${id}`,
  )
}

const factsOf = (trx: Knex, id: string): Promise<FloatingFacts> =>
  one(
    trx,
    sql<FloatingFacts>`
      SELECT floating_ip.id, floating_ip.project_id, floating_ip.floating_network_id, host(outer_ip.address) AS address,
             inner_ip.port_id
        FROM floating_ip
        JOIN fixed_ip outer_ip ON outer_ip.port_id = floating_ip.floating_port_id
        LEFT JOIN fixed_ip inner_ip
          ON inner_ip.subnet_id = floating_ip.fixed_subnet_id AND inner_ip.address = floating_ip.fixed_ip_address
       WHERE floating_ip.id = ${id}`,
  )

async function associate(
  trx: Knex,
  caller: Caller,
  floating: FloatingFacts,
  portId: string,
  wanted: string | null,
): Promise<void> {
  const port = await selectOne(trx, portSource, caller, portId)
  if (port === null) throw notFound('port', portId)
  if (port.project_id !== floating.project_id) {
    throw badRequest(
      'floatingip',
      `Cannot process floating IP association with Port ${portId}, since that port is owned by a different tenant`,
    )
  }
  if (isHiddenOwner(port.device_owner)) {
    throw badRequest('floatingip', `Cannot associate a floating IP with Port ${portId}: a service of Krater uses it`)
  }
  const fixed = chooseAddress(port, wanted)
  const routerId = await lockRouter(trx, floating, port, fixed.subnet_id)
  await lockAddress(trx, portId, fixed)
  const other = await maybeOne(
    trx,
    sql`SELECT id FROM floating_ip
         WHERE floating_network_id = ${floating.floating_network_id} AND fixed_subnet_id = ${fixed.subnet_id}
           AND fixed_ip_address = ${fixed.ip_address} AND id <> ${floating.id}`,
  )
  if (other !== undefined) {
    throw conflict(
      'FloatingIPPortAlreadyAssociated',
      `Cannot associate floating IP ${floating.address} (${floating.id}) with port ${portId} using fixed IP ${fixed.ip_address}, as that fixed IP already has a floating IP on external network ${floating.floating_network_id}.`,
    )
  }
  await execute(
    trx,
    sql`UPDATE floating_ip SET fixed_subnet_id = ${fixed.subnet_id}, fixed_ip_address = ${fixed.ip_address},
                               router_id = ${routerId}
         WHERE id = ${floating.id}`,
  )
}

/** Of two floating IPs that would lead to one address at the same time, the second sees the first. @throws NeutronError 400 */
async function lockAddress(trx: Knex, portId: string, { subnet_id, ip_address }: FixedIp): Promise<void> {
  const held = await maybeOne(
    trx,
    sql`SELECT address FROM fixed_ip
         WHERE subnet_id = ${subnet_id} AND address = ${ip_address} AND port_id = ${portId} FOR NO KEY UPDATE`,
  )
  if (held === undefined) throw badRequest('floatingip', `Port ${portId} does not have fixed ip ${ip_address}`)
}

/** The IPv4 address of the port that the floating IP leads to: the wanted one, or the only one. */
function chooseAddress({ id, fixed_ips }: PortRow, wanted: string | null): FixedIp {
  const candidates = fixed_ips.filter(({ ip_address }) => !ip_address.includes(':'))
  if (wanted?.includes(':')) {
    throw badRequest(
      'floatingip',
      `Cannot process floating IP association with ${wanted}, since that is not an IPv4 address`,
    )
  }
  const found = wanted === null ? candidates : candidates.filter(({ ip_address }) => ip_address === wanted)
  const [first, ...more] = found
  if (first === undefined) {
    throw badRequest(
      'floatingip',
      wanted === null
        ? `Cannot add floating IP to port ${id} that has no fixed IPv4 addresses`
        : `Port ${id} does not have fixed ip ${wanted}`,
    )
  }
  if (more.length > 0) {
    throw badRequest(
      'floatingip',
      `Port ${id} has multiple fixed IPv4 addresses.  Must provide a specific IPv4 address when assigning a floating IP`,
    )
  }
  return first
}

/**
 * The router between the subnet and the external network, locked so that it keeps both legs: the one that is the
 * subnet's gateway, else any. Only a router of the floating IP's project or of the network's is trusted with its traffic.
 */
async function lockRouter(
  trx: Knex,
  { project_id, floating_network_id }: FloatingFacts,
  port: PortRow,
  subnetId: string,
): Promise<string> {
  const candidates = sql<{ id: string }>`
    SELECT router.id
      FROM router
      JOIN router_port inner_leg ON inner_leg.router_id = router.id AND NOT inner_leg.gateway
      JOIN fixed_ip ON fixed_ip.port_id = inner_leg.port_id AND fixed_ip.subnet_id = ${subnetId}
      JOIN subnet ON subnet.id = fixed_ip.subnet_id
      JOIN router_port outer_leg ON outer_leg.router_id = router.id AND outer_leg.gateway
      JOIN port outer_port ON outer_port.id = outer_leg.port_id AND outer_port.network_id = ${floating_network_id}
     WHERE router.project_id IN (${project_id}, ${port.network_project_id})
     ORDER BY fixed_ip.address = subnet.gateway_ip DESC, router.created_at, router.id`
  for (const { id } of await many(trx, candidates)) {
    await execute(trx, sql`SELECT id FROM router WHERE id = ${id} FOR NO KEY UPDATE`)
    // A leg may have gone while this waited for the lock.
    const present = await many(trx, candidates)
    if (present.some(router => router.id === id)) return id
  }
  throw new NeutronError(
    404,
    'ExternalGatewayForFloatingIPNotFound',
    `External network ${floating_network_id} is not reachable from subnet ${subnetId}.  Therefore, cannot associate Port ${port.id} with a Floating IP.`,
  )
}
