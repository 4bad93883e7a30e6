import { randomBytes } from 'node:crypto'
import type { Knex } from 'knex'
import { execute, many, maybeOne } from '../../database/query.js'
import { type Fragment, insertion, prepared, sql } from '../../database/sql.js'
import { sqlState } from '../../database/transaction.js'
import { computeOnThread } from '../../process/compute-thread.js'
import { contains, formatAddress, normaliseAddress, parseCidr } from '../addresses.js'
import { AddressTaken, InvalidPortRequest, type Port } from '../driver.js'
import { allocateAddress, claimAddress } from './allocation.js'
import { isInReserve, requireShare, type SharedAddresses } from './shared-addresses.js'
import type { SubnetFacts } from './subnets.js'

export type PortRow = {
  id: string
  network_id: string
  project_id: string
  name: string
  mac_address: string
  device_id: string
  device_owner: string
  fixed_ips: { subnet_id: string; ip_address: string }[]
  allowed_addresses: string[]
  security_groups: string[]
}

/** The fixed IPs of a port (alias `port`) in the order in which they were assigned. */
export const FIXED_IPS = sql`coalesce((
  SELECT json_agg(json_build_object('subnet_id', fixed_ip.subnet_id, 'ip_address', host(fixed_ip.address)) ORDER BY fixed_ip.ordinal)
    FROM fixed_ip WHERE fixed_ip.port_id = port.id), '[]')`

const COLUMNS = sql`port.id, port.network_id, port.project_id, port.name, port.mac_address::text AS mac_address,
  port.device_id, port.device_owner, port.allowed_addresses, ${FIXED_IPS} AS fixed_ips,
  ARRAY(SELECT security_group_id FROM port_security_group
         WHERE port_id = port.id AND port.filtered ORDER BY security_group_id) AS security_groups`

/** The ports that match a condition over the aliases `port` and `network`. */
export async function selectPorts(database: Knex, condition: Fragment): Promise<Port[]> {
  const rows = await many(
    database,
    sql<PortRow>`
      SELECT ${COLUMNS} FROM port JOIN network ON network.id = port.network_id
       WHERE ${condition} ORDER BY port.created_at, port.id`,
  )
  return rows.map(portOf)
}

const portOf = (row: PortRow): Port => ({
  id: row.id,
  networkId: row.network_id,
  projectId: row.project_id,
  name: row.name,
  macAddress: row.mac_address,
  deviceId: row.device_id,
  deviceOwner: row.device_owner,
  fixedIps: row.fixed_ips.map(fixedIp => ({ subnetId: fixedIp.subnet_id, address: fixedIp.ip_address })),
  allowedAddresses: row.allowed_addresses,
  securityGroups: row.security_groups,
})

export type PortColumns = {
  port_security_enabled?: boolean
  filtered?: boolean
  network_id: string
  project_id: string
  name: string
  description?: string
  admin_state_up?: boolean
  mac_address?: string
  device_id: string
  device_owner: string
  ensured_name: string | null
  allowed_addresses?: readonly string[]
}

/** Replaces the security groups of a port. The caller has checked that they exist. */
export async function replaceGroups(trx: Knex, portId: string, ids: readonly string[]): Promise<void> {
  await execute(
    trx,
    sql`DELETE FROM port_security_group WHERE port_id = ${portId} AND security_group_id <> ALL(${ids}::uuid[])`,
  )
  await execute(
    trx,
    sql`INSERT INTO port_security_group (port_id, security_group_id) SELECT ${portId}, unnest(${ids}::uuid[])
        ON CONFLICT DO NOTHING`,
  )
}

const MAX_MAC_ATTEMPTS = 20
const FOREIGN_KEY_VIOLATION = '23503'

/**
 * Inserts a port without addresses, with a random MAC address unless one is given.
 * @returns null if a port with this (device_id, device_owner, ensured_name) exists or the given MAC address is in use
 * @throws InvalidPortRequest if the network was deleted concurrently
 */
export async function insertPort(trx: Knex, columns: PortColumns): Promise<string | null> {
  for (let attempt = 0; attempt < MAX_MAC_ATTEMPTS; attempt++) {
    const mac_address = columns.mac_address ?? randomMacAddress()
    const values = prepared(insertion([{ ...columns, mac_address }]))
    const row = await maybeOne(
      trx,
      sql<{ id: string }>`INSERT INTO port ${values} ON CONFLICT DO NOTHING RETURNING id`,
    ).catch(error => {
      if (sqlState(error) !== FOREIGN_KEY_VIOLATION) throw error
      throw new InvalidPortRequest(`Network ${columns.network_id} could not be found.`)
    })
    if (row !== undefined) return row.id
    if (columns.mac_address !== undefined) return null
    if (columns.ensured_name === null) continue
    const { device_id, device_owner, ensured_name } = columns
    const existing = await maybeOne(
      trx,
      sql`SELECT id FROM port
           WHERE device_id = ${device_id} AND device_owner = ${device_owner} AND ensured_name = ${ensured_name}`,
    )
    if (existing !== undefined) return null
  }
  throw new Error(`Found no free MAC address on network ${columns.network_id} in ${MAX_MAC_ATTEMPTS} attempts`)
}

function randomMacAddress(): string {
  const [a, b, c] = [...randomBytes(3)].map(byte => byte.toString(16).padStart(2, '0'))
  return `fa:16:3e:${a}:${b}:${c}`
}

/**
 * Gives the port one address of the subnet: the desired one, or any free one.
 * @param rules the limits on shared networks; null for the service's own ports
 * @throws InvalidPortRequest if the desired address is not a host address of the subnet; AddressTaken, NoAddressLeft,
 *   ShareExhausted
 */
export async function placeAddress(
  trx: Knex,
  port: { id: string; projectId: string },
  subnet: SubnetFacts,
  desired: string | undefined,
  rules: SharedAddresses | null,
): Promise<void> {
  const reserve = rules !== null && subnet.shared ? rules.reserve : 0
  if (rules !== null) await requireShare(trx, subnet, port.projectId, rules)
  // This machine would be lost to its LAN if a port announced its address there.
  const others = subnet.on_lan ? await addressesOfHost() : []
  if (desired === undefined) {
    return allocateAddress(trx, { subnetId: subnet.id, portId: port.id, reserve, others })
  }
  const address = normaliseAddress(desired)
  const cidr = parseCidr(subnet.cidr)!
  if (address === null || !contains(cidr, address)) {
    throw new InvalidPortRequest(`IP address ${desired} is not a valid IP for the specified subnet.`)
  }
  if (isNetworkOrBroadcast(subnet, address)) {
    throw new InvalidPortRequest(`IP address ${desired} is the network or broadcast address of the specified subnet.`)
  }
  if (others.includes(address)) throw new AddressTaken(`IP address ${address} belongs to another machine.`)
  if (subnet.on_lan && port.projectId !== subnet.network_project_id && !(await isInPool(trx, subnet.id, address))) {
    throw new InvalidPortRequest(
      `IP address ${address} is outside the allocation pools of subnet ${subnet.id}. Only the project of a network that leads to a LAN chooses such addresses.`,
    )
  }
  if (reserve > 0 && (await isInReserve(trx, subnet.id, address, reserve))) {
    throw new AddressTaken(`IP address ${address} of subnet ${subnet.id} is reserved for the load balancer service.`)
  }
  if (address === subnet.gateway_ip || !(await claimAddress(trx, subnet.id, port.id, address))) {
    throw new AddressTaken(`IP address ${address} already allocated in subnet ${subnet.id}`)
  }
}

async function addressesOfHost(): Promise<string[]> {
  const interfaces = await computeOnThread({ kind: 'network interfaces' })
  return Object.values(interfaces).flatMap((own = []) => own.map(({ address }) => address))
}

/** Machines of a LAN that have no port have the addresses outside the pools. */
async function isInPool(trx: Knex, subnetId: string, address: string): Promise<boolean> {
  const pool = await maybeOne(
    trx,
    sql`SELECT FROM allocation_pool WHERE subnet_id = ${subnetId} AND CAST(${address} AS inet) BETWEEN first AND last`,
  )
  return pool !== undefined
}

function isNetworkOrBroadcast(subnet: SubnetFacts, address: string): boolean {
  const cidr = parseCidr(subnet.cidr)!
  if (cidr.last - cidr.first < 2n) return false
  const reserved = cidr.version === 4 ? [cidr.first, cidr.last] : [cidr.first]
  return reserved.some(value => formatAddress(cidr.version, value) === address)
}
