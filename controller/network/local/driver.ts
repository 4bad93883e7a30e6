import type { Knex } from 'knex'
import type { Database } from '../../database/connection.js'
import { execute, many, maybeOne } from '../../database/query.js'
import { type Fragment, sql } from '../../database/sql.js'
import { inTransaction } from '../../database/transaction.js'
import { parseAddress } from '../addresses.js'
import {
  AddressTaken,
  InvalidPortRequest,
  type Network,
  type NetworkDriver,
  PORT_OWNER,
  type Port,
  type PortRequest,
  type Subnet,
} from '../driver.js'
import { isUuid, ownObjects, usableNetworks, visiblePorts, visibleSubnets } from '../visibility.js'
import { freeAddresses } from './allocation.js'
import { insertPort, placeAddress, replaceGroups, selectPorts } from './ports.js'
import type { SharedAddresses } from './shared-addresses.js'
import { OVERLAPS_MANAGEMENT, subnetFacts } from './subnets.js'

/** Networks, subnets and ports in Krater's own tables (the `network` schema). The fabric builds them in the kernel. */
export function createLocalDriver(database: Database, shared: SharedAddresses): NetworkDriver {
  return {
    name: 'local',
    reachesHost: true,
    ...callerLookUps(database),
    ...portLists(database),

    network: async id => (isUuid(id) ? ((await selectNetworks(database, sql`network.id = ${id}`))[0] ?? null) : null),
    subnets: async ids => selectSubnets(database, sql`subnet.id = ANY(${ids.filter(isUuid)}::uuid[])`),
    subnetOf: async (projectId, address) => {
      const [subnet] = parseAddress(address) === null ? [] : await subnetsAround(database, projectId, address)
      return subnet ?? null
    },
    freeAddresses: async id => (isUuid(id) ? countFreeAddresses(database, id, shared) : 0),
    port: id => findPort(database, id),

    ensurePort: request => ensurePort(database, request, shared),
    bindPort: (id, device) => (device === null ? unbindPort(database, id) : bindPort(database, id, device)),
    setSecurityGroups: (portId, groupIds) => setSecurityGroups(database, portId, groupIds),
    releaseAddresses: (portId, subnetIds) => releaseAddresses(database, portId, subnetIds),
    deletePort: async id => {
      if (isUuid(id)) await execute(database, sql`DELETE FROM port WHERE id = ${id}`)
    },

    managementNetwork: () => findManagementNetwork(database),
  }
}

type CallerLookUps = Pick<
  NetworkDriver,
  'findNetwork' | 'findSubnet' | 'findPort' | 'findSecurityGroup' | 'findQosPolicy'
>

const callerLookUps = (database: Database): CallerLookUps => ({
  findNetwork: async (caller, id) => {
    if (!isUuid(id)) return null
    return (await selectNetworks(database, sql`network.id = ${id} AND ${usableNetworks(caller)}`))[0] ?? null
  },
  findSubnet: async (caller, id) => {
    if (!isUuid(id)) return null
    return (await selectSubnets(database, sql`subnet.id = ${id} AND ${visibleSubnets(caller)}`))[0] ?? null
  },
  findPort: async (caller, id) => {
    if (!isUuid(id)) return null
    return (await selectPorts(database, sql`port.id = ${id} AND ${visiblePorts(caller)}`))[0] ?? null
  },
  findSecurityGroup: async (caller, id) => {
    if (!isUuid(id)) return null
    const own = ownObjects('security_group')(caller)
    const found = await maybeOne(
      database,
      sql<{ id: string }>`SELECT id FROM security_group WHERE id = ${id} AND ${own}`,
    )
    return found ?? null
  },
  findQosPolicy: null,
})

const portLists = (database: Database): Pick<NetworkDriver, 'portsOwnedBy' | 'boundPorts' | 'portsOf'> => ({
  portsOwnedBy: async (deviceOwner, olderThanSeconds) =>
    selectPorts(
      database,
      sql`port.device_owner = ${deviceOwner} AND port.ensured_name IS NOT NULL
          AND port.created_at < now() - ${olderThanSeconds} * interval '1 second'`,
    ),
  boundPorts: async (deviceOwner, olderThanSeconds) =>
    selectPorts(
      database,
      sql`port.device_owner = ${deviceOwner} AND port.ensured_name IS NULL
          AND port.updated_at < now() - ${olderThanSeconds} * interval '1 second'`,
    ),
  portsOf: async deviceId => selectPorts(database, sql`port.device_id = ${deviceId} AND port.ensured_name IS NOT NULL`),
})

/** The subnets of a project that contain an address. Its own networks come before shared ones, narrow subnets before wide. */
const subnetsAround = (database: Database, projectId: string, address: string): Promise<Subnet[]> =>
  selectSubnets(
    database,
    sql`(network.project_id = ${projectId} OR network.shared) AND network.built_in IS DISTINCT FROM 'management'
        AND subnet.cidr >> ${address}::inet`,
    sql`network.project_id = ${projectId} DESC, masklen(subnet.cidr) DESC, `,
  )

const findPort = async (database: Database, id: string): Promise<Port | null> =>
  isUuid(id) ? ((await selectPorts(database, sql`port.id = ${id}`))[0] ?? null) : null

async function ensurePort(database: Database, request: PortRequest, shared: SharedAddresses): Promise<Port> {
  const existing = await findEnsuredPort(database, request)
  if (existing !== null && missingFixedIps(existing, request).length === 0) return existing
  const changed = await inTransaction(database, trx =>
    existing === null ? makePort(trx, request, shared) : growPort(trx, existing.id, request, shared),
  )
  const found = changed ?? (await findEnsuredPort(database, request))
  if (found === null) throw new Error(`Port ${request.name} was deleted concurrently`)
  return found
}

type Device = { deviceId: string; deviceOwner: string }

const HAS_GROUPS = sql`EXISTS (SELECT FROM port_security_group WHERE port_id = port.id)`

async function bindPort(database: Database, id: string, { deviceId, deviceOwner }: Device): Promise<void> {
  requirePortId(id)
  const bound = await execute(
    database,
    // A user's port gets its groups for its own machine. Those of a VIP are the load balancer's. One without groups,
    // through which nothing passes, has none to lose: it stays as it is.
    sql`UPDATE port SET device_id = ${deviceId}, device_owner = ${deviceOwner}, updated_at = now(),
                          filtered = filtered AND (device_id = ${deviceId} OR NOT ${HAS_GROUPS}),
                          revision_number = revision_number + (device_id <> ${deviceId})::integer
         WHERE id = ${id} AND device_id IN ('', ${deviceId})`,
  )
  if (bound === 1) return
  const port = await findPort(database, id)
  if (port === null) throw portNotFound(id)
  throw new AddressTaken(`Port ${id} is in use by device ${port.deviceId}.`)
}

async function unbindPort(database: Database, id: string): Promise<void> {
  requirePortId(id)
  await execute(
    database,
    sql`UPDATE port SET device_id = '', device_owner = '', revision_number = revision_number + 1,
                        filtered = port_security_enabled AND (filtered OR ${HAS_GROUPS})
         WHERE id = ${id} AND ensured_name IS NULL`,
  )
}

const portNotFound = (id: string) => new InvalidPortRequest(`Port ${id} could not be found.`)

function requirePortId(id: string): void {
  if (!isUuid(id)) throw portNotFound(id)
}

async function setSecurityGroups(database: Database, portId: string, groupIds: readonly string[]): Promise<void> {
  requirePortId(portId)
  await inTransaction(database, async trx => {
    const port = await maybeOne(
      trx,
      sql<{ port_security_enabled: boolean }>`SELECT port_security_enabled FROM port WHERE id = ${portId} FOR UPDATE`,
    )
    if (port === undefined) throw portNotFound(portId)
    if (groupIds.length > 0 && !port.port_security_enabled) {
      throw new InvalidPortRequest(`Port ${portId} has no port security, so it cannot have security groups.`)
    }
    const known = await many(
      trx,
      sql<{
        id: string
      }>`SELECT id FROM security_group WHERE id = ANY(${groupIds.filter(isUuid)}::uuid[]) FOR KEY SHARE`,
    )
    const missing = groupIds.find(id => !known.some(group => group.id === id))
    if (missing !== undefined) throw new InvalidPortRequest(`Security group ${missing} could not be found.`)
    await replaceGroups(trx, portId, groupIds)
    await execute(
      trx,
      sql`UPDATE port SET filtered = ${groupIds.length > 0}, updated_at = now(), revision_number = revision_number + 1
           WHERE id = ${portId}`,
    )
  })
}

async function releaseAddresses(database: Database, portId: string, subnetIds: readonly string[]): Promise<void> {
  const ids = subnetIds.filter(isUuid)
  if (!isUuid(portId) || ids.length === 0) return
  await execute(
    database,
    sql`DELETE FROM fixed_ip USING port
         WHERE fixed_ip.port_id = port.id AND port.id = ${portId} AND port.ensured_name IS NOT NULL
           AND fixed_ip.subnet_id = ANY(${ids}::uuid[])`,
  )
}

async function findManagementNetwork(database: Database): ReturnType<NetworkDriver['managementNetwork']> {
  const [network] = await selectNetworks(database, sql`network.built_in = 'management'`)
  const [subnet] = network ? await selectSubnets(database, sql`subnet.network_id = ${network.id}`) : []
  if (network === undefined || subnet === undefined || subnet.gatewayIp === null) {
    throw new Error('There is no management network yet. Run `krater up` to create the built-in networks')
  }
  return { network, subnet, controllerAddress: subnet.gatewayIp }
}

async function countFreeAddresses(database: Knex, subnetId: string, { reserve }: SharedAddresses): Promise<number> {
  const subnet = (await subnetFacts(database, [subnetId])).get(subnetId)
  return subnet === undefined ? 0 : freeAddresses(database, subnetId, subnet.shared ? reserve : 0)
}

async function findEnsuredPort(database: Knex, { deviceId, deviceOwner, name }: PortRequest): Promise<Port | null> {
  const [port] = await selectPorts(
    database,
    sql`port.device_id = ${deviceId} AND port.device_owner = ${deviceOwner} AND port.ensured_name = ${name}`,
  )
  return port ?? null
}

/** @returns null if a concurrent caller made the same port */
async function makePort(trx: Knex, request: PortRequest, shared: SharedAddresses): Promise<Port | null> {
  const { networkId } = request
  const network = isUuid(networkId)
    ? await maybeOne(trx, sql`SELECT id FROM network WHERE id = ${networkId}`)
    : undefined
  if (network === undefined) {
    throw new InvalidPortRequest(`Network ${networkId} could not be found.`)
  }
  const id = await insertPort(trx, {
    network_id: networkId,
    project_id: request.projectId,
    name: request.name,
    device_id: request.deviceId,
    device_owner: request.deviceOwner,
    ensured_name: request.name,
    allowed_addresses: request.allowedAddresses ?? [],
  })
  if (id === null) return null
  await placeAddresses(trx, id, request, request.fixedIps, shared)
  return (await selectPorts(trx, sql`port.id = ${id}`))[0] ?? null
}

/** @returns null if the port was deleted concurrently */
async function growPort(trx: Knex, id: string, request: PortRequest, shared: SharedAddresses): Promise<Port | null> {
  // This also locks the row: two concurrent requests would each place an address.
  const changed = sql`updated_at = now(), revision_number = revision_number + 1`
  await execute(trx, sql`UPDATE port SET ${changed} WHERE id = ${id}`)
  const [port] = await selectPorts(trx, sql`port.id = ${id}`)
  if (port === undefined) return null
  await placeAddresses(trx, id, request, missingFixedIps(port, request), shared)
  return (await selectPorts(trx, sql`port.id = ${id}`))[0] ?? null
}

const missingFixedIps = ({ fixedIps }: Port, request: PortRequest): PortRequest['fixedIps'] =>
  request.fixedIps.filter(({ subnetId }) => !fixedIps.some(fixedIp => fixedIp.subnetId === subnetId))

async function placeAddresses(
  trx: Knex,
  id: string,
  { networkId, projectId, deviceOwner }: PortRequest,
  fixedIps: PortRequest['fixedIps'],
  shared: SharedAddresses,
): Promise<void> {
  const facts = await subnetFacts(trx, fixedIps.map(fixedIp => fixedIp.subnetId).filter(isUuid))
  // Only VIPs obey the limits: amphorae must find an address however many tenants hold.
  const rules = deviceOwner === PORT_OWNER.vip ? shared : null
  for (const { subnetId, address } of fixedIps) {
    const subnet = facts.get(subnetId)
    if (subnet === undefined) throw new InvalidPortRequest(`Subnet ${subnetId} could not be found.`)
    if (subnet.network_id !== networkId) {
      throw new InvalidPortRequest(`Subnet ${subnetId} is not on network ${networkId}.`)
    }
    await placeAddress(trx, { id, projectId }, subnet, address, rules)
  }
}

async function selectNetworks(database: Knex, condition: Fragment): Promise<Network[]> {
  type Row = {
    id: string
    project_id: string
    shared: boolean
    mtu: number
    subnet_ids: string[]
    is_physical: boolean
  }
  const rows = await many(
    database,
    sql<Row>`
      SELECT network.id, network.project_id, network.shared, network.mtu, network.network_type <> 'local' AS is_physical,
             ARRAY(SELECT subnet.id FROM subnet WHERE subnet.network_id = network.id
                    ORDER BY subnet.created_at, subnet.id) AS subnet_ids
        FROM network WHERE ${condition}`,
  )
  return rows.map(({ id, project_id, shared, mtu, subnet_ids, is_physical }) => ({
    id,
    projectId: project_id,
    shared,
    mtu,
    subnetIds: subnet_ids,
    isPhysical: is_physical,
  }))
}

async function selectSubnets(database: Knex, condition: Fragment, first: Fragment = sql``): Promise<Subnet[]> {
  type Row = {
    id: string
    network_id: string
    project_id: string
    ip_version: 4 | 6
    cidr: string
    gateway_ip: string | null
    host_routes: { destination: string; nexthop: string }[]
    overlaps_management: boolean
  }
  const rows = await many(
    database,
    sql<Row>`
      SELECT subnet.id, subnet.network_id, subnet.project_id, subnet.ip_version, subnet.cidr::text AS cidr,
             host(subnet.gateway_ip) AS gateway_ip, subnet.host_routes, ${OVERLAPS_MANAGEMENT} AS overlaps_management
        FROM subnet JOIN network ON network.id = subnet.network_id
       WHERE ${condition} ORDER BY ${first}subnet.created_at, subnet.id`,
  )
  return rows.map(row => ({
    id: row.id,
    networkId: row.network_id,
    projectId: row.project_id,
    ipVersion: row.ip_version,
    cidr: row.cidr,
    gatewayIp: row.gateway_ip,
    hostRoutes: row.host_routes,
    overlapsManagement: row.overlaps_management,
  }))
}
