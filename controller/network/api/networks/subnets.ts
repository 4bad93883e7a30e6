import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, maybeOne } from '../../../database/query.js'
import { assignments, json, sql } from '../../../database/sql.js'
import { sqlState } from '../../../database/transaction.js'
import type { Caller } from '../../../identity/caller.js'
import { type AddressRange, parseCidr } from '../../addresses.js'
import { insertSubnet, OVERLAPS_MANAGEMENT, replacePools } from '../../local/subnets.js'
import { visibleSubnets } from '../../visibility.js'
import { attribute, parseAttributes, requireAttributes } from '../body.js'
import { conflict, invalidInput, notAuthorized, notFound } from '../neutron-error.js'
import { chargeQuota, type QuotaSettings } from '../quotas.js'
import {
  CHANGED,
  type ChangeableResource,
  type CommonRow,
  changeableResource,
  commonColumns,
  commonFilters,
  FOREIGN_KEY_VIOLATION,
  type Item,
  lockOwned,
  ownerOf,
  owns,
  presentCommon,
  requireWriter,
} from '../resource.js'
import { type Source, selectOne, tagFilters } from '../select.js'
import { isUsedByControllers, networkSource } from './networks.js'
import { checkGateway, checkPools, chooseGateway, choosePools } from './subnet-rules.js'

export type SubnetRow = CommonRow & {
  network_id: string
  ip_version: 4 | 6
  cidr: string
  gateway_ip: string | null
  enable_dhcp: boolean
  ipv6_ra_mode: string | null
  ipv6_address_mode: string | null
  dns_nameservers: string[]
  host_routes: { destination: string; nexthop: string }[]
  allocation_pools: AddressRange[]
  network_built_in: string | null
  network_project_id: string
}

export const subnetSource: Source<SubnetRow> & { kind: 'subnet' } = {
  kind: 'subnet',
  table: 'subnet',
  select: sql<SubnetRow>`${commonColumns('subnet')}, subnet.network_id, subnet.ip_version, subnet.cidr::text AS cidr,
    host(subnet.gateway_ip) AS gateway_ip, subnet.enable_dhcp, subnet.ipv6_ra_mode, subnet.ipv6_address_mode,
    subnet.dns_nameservers, subnet.host_routes, network.built_in AS network_built_in, network.project_id AS network_project_id,
    coalesce((SELECT json_agg(json_build_object('start', host(pool.first), 'end', host(pool.last)) ORDER BY pool.first)
                FROM allocation_pool pool WHERE pool.subnet_id = subnet.id), '[]') AS allocation_pools`,
  from: sql`subnet JOIN network ON network.id = subnet.network_id`,
  visible: visibleSubnets,
  columns: {
    ...commonFilters('subnet'),
    network_id: { sql: sql`subnet.network_id`, kind: 'uuid' },
    ip_version: { sql: sql`subnet.ip_version`, kind: 'integer' },
    cidr: { sql: sql`subnet.cidr`, kind: 'cidr' },
    gateway_ip: { sql: sql`subnet.gateway_ip`, kind: 'address' },
    enable_dhcp: { sql: sql`subnet.enable_dhcp`, kind: 'boolean' },
    ipv6_ra_mode: { sql: sql`subnet.ipv6_ra_mode`, kind: 'text' },
    ipv6_address_mode: { sql: sql`subnet.ipv6_address_mode`, kind: 'text' },
    shared: { sql: sql`network.shared`, kind: 'boolean' },
    subnetpool_id: { constant: null },
    segment_id: { constant: null },
    service_types: { constant: null },
    dns_publish_fixed_ip: { constant: 'false' },
    'router:external': { sql: sql`network.external`, kind: 'boolean' },
  },
  filters: tagFilters('subnet'),
}

export const presentSubnet = (row: SubnetRow): Item => ({
  ...presentCommon(row),
  network_id: row.network_id,
  ip_version: row.ip_version,
  cidr: row.cidr,
  gateway_ip: row.gateway_ip,
  allocation_pools: row.allocation_pools,
  enable_dhcp: row.enable_dhcp,
  ipv6_ra_mode: row.ipv6_ra_mode,
  ipv6_address_mode: row.ipv6_address_mode,
  dns_nameservers: row.dns_nameservers,
  host_routes: row.host_routes,
  subnetpool_id: null,
  segment_id: null,
  service_types: [],
  dns_publish_fixed_ip: false,
})

const changeable = {
  name: attribute.text,
  description: attribute.text,
  gateway_ip: attribute.address.nullable(),
  allocation_pools: z
    .array(z.strictObject({ start: attribute.address, end: attribute.address }))
    .max(64, { error: 'the maximum is 64 allocation pools' }),
  dns_nameservers: z.array(attribute.address).max(5, { error: 'the maximum is 5 name servers' }),
  host_routes: z
    .array(z.strictObject({ destination: attribute.cidr.transform(cidr => cidr.text), nexthop: attribute.address }))
    .max(20, { error: 'the maximum is 20 host routes' }),
  enable_dhcp: attribute.boolean,
  service_types: attribute.emptyList,
}

const ipv6Mode = z
  .enum(['slaac', 'dhcpv6-stateful', 'dhcpv6-stateless'], {
    error: issue => `${JSON.stringify(issue.input)} is not in ['dhcpv6-stateful', 'dhcpv6-stateless', 'slaac']`,
  })
  .nullable()

export const updateSchema = z.strictObject(changeable).partial()

export const createSchema = z
  .strictObject({
    ...changeable,
    ip_version: z.preprocess(
      value => (value === '4' || value === '6' ? Number(value) : value),
      z.union([z.literal(4), z.literal(6)], { error: issue => `${JSON.stringify(issue.input)} is not in [4, 6]` }),
    ),
    ipv6_ra_mode: ipv6Mode,
    ipv6_address_mode: ipv6Mode,
    project_id: attribute.projectId,
    tenant_id: attribute.projectId,
    subnetpool_id: z.null({ error: 'this service has no subnet pools' }),
    segment_id: z.null({ error: 'this service has no segments' }),
  })
  .partial()
  .extend({ network_id: attribute.id, cidr: attribute.cidr })

/** Subnets in Krater's own tables. */
export const createSubnets = (database: Database, config: QuotaSettings): ChangeableResource =>
  changeableResource(database, {
    source: subnetSource,
    present: presentSubnet,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update,
    remove,
  })

async function create(trx: Knex, caller: Caller, attributes: unknown, { quota }: QuotaSettings): Promise<string> {
  requireWriter(caller, 'create_subnet')
  requireAttributes(attributes, ['network_id', 'cidr'])
  const body = parseAttributes(createSchema, attributes)
  const { cidr, network_id: networkId } = body
  const network = await selectOne(trx, networkSource, caller, networkId)
  if (network === null) throw notFound('network', networkId)
  if (!owns(caller, network)) throw notAuthorized('create_subnet')
  const projectId = ownerOf(caller, body, 'create_subnet')
  if (body.ip_version !== undefined && body.ip_version !== cidr.version) {
    throw invalidInput(`cidr '${cidr.text}' does not match the ip_version '${body.ip_version}'`)
  }
  if (cidr.prefix === 0) throw invalidInput('0 is not allowed as CIDR prefix length')
  const { ipv6_ra_mode = null, ipv6_address_mode = null } = body
  if (cidr.version === 4 && (ipv6_ra_mode !== null || ipv6_address_mode !== null)) {
    throw invalidInput('ipv6_ra_mode or ipv6_address_mode cannot be set when ip_version is not 6.')
  }
  if (ipv6_ra_mode !== null && ipv6_address_mode !== null && ipv6_ra_mode !== ipv6_address_mode) {
    throw invalidInput(
      `ipv6_ra_mode set to '${ipv6_ra_mode}' with ipv6_address_mode set to '${ipv6_address_mode}' is not valid. If both attributes are set, they must be the same value`,
    )
  }
  // Lock the quota's row before the network's, in the same order as the creation of a port.
  await chargeQuota(trx, projectId, 'subnet', quota)
  // Locked until the end, so that of two overlapping subnets created concurrently the second sees the first.
  if ((await selectOne(trx, networkSource, caller, networkId, true)) === null) throw notFound('network', networkId)
  await refuseOverlap(trx, networkId, cidr.text)
  const gateway = chooseGateway(cidr, body.gateway_ip)
  const pools = choosePools(cidr, gateway, body.allocation_pools)
  const columns = {
    network_id: networkId,
    project_id: projectId,
    name: body.name ?? '',
    description: body.description ?? '',
    ip_version: cidr.version,
    cidr: cidr.text,
    gateway_ip: gateway,
    enable_dhcp: body.enable_dhcp ?? true,
    ipv6_ra_mode,
    ipv6_address_mode,
    dns_nameservers: body.dns_nameservers ?? [],
    host_routes: body.host_routes ?? [],
  }
  const id = await insertSubnet(trx, columns, pools)
  await refuseManagementOverlap(trx, id)
  return id
}

async function refuseOverlap(trx: Knex, networkId: string, cidr: string): Promise<void> {
  const other = await maybeOne(
    trx,
    sql`SELECT id FROM subnet WHERE network_id = ${networkId} AND cidr && ${cidr}::cidr LIMIT 1`,
  )
  if (other === undefined) return
  throw invalidInput(`Requested subnet with cidr: ${cidr} for network: ${networkId} overlaps with another subnet`)
}

/** Amphorae on such a subnet could lose contact with their controllers. @throws NeutronError 400 */
async function refuseManagementOverlap(trx: Knex, id: string): Promise<void> {
  const found = await maybeOne(
    trx,
    sql<{ cidr: string }>`SELECT subnet.cidr::text AS cidr FROM subnet WHERE id = ${id} AND ${OVERLAPS_MANAGEMENT}`,
  )
  if (found === undefined) return
  throw invalidInput(
    `the subnet with cidr ${found.cidr} or one of its host_routes overlaps the management network of the load balancer service`,
  )
}

async function update(trx: Knex, caller: Caller, id: string, attributes: unknown): Promise<void> {
  const row = await lockOwned(trx, subnetSource, caller, id, 'update_subnet')
  const body = parseAttributes(updateSchema, attributes)
  const cidr = parseCidr(row.cidr)!
  const gateway = body.gateway_ip === undefined ? row.gateway_ip : body.gateway_ip
  const pools = body.allocation_pools ?? row.allocation_pools
  if (gateway !== row.gateway_ip) {
    if (isUsedByControllers(row.network_built_in))
      throw inUse(id, 'The gateway address belongs to the load balancer service.')
    checkGateway(cidr, gateway)
    await refuseGatewayInUse(trx, id, row.gateway_ip)
    await refuseGatewayInUse(trx, id, gateway)
  }
  checkPools(cidr, gateway, pools)
  const { allocation_pools, dns_nameservers, host_routes, service_types, ...columns } = body
  const values = assignments({
    ...columns,
    dns_nameservers: dns_nameservers && json(dns_nameservers),
    host_routes: host_routes && json(host_routes),
    ...CHANGED,
  })
  await execute(trx, sql`UPDATE subnet SET ${values} WHERE id = ${id}`)
  if (host_routes !== undefined) await refuseManagementOverlap(trx, id)
  if (allocation_pools !== undefined) await replacePools(trx, id, allocation_pools)
}

async function refuseGatewayInUse(trx: Knex, id: string, gateway: string | null): Promise<void> {
  if (gateway === null) return
  const port = await maybeOne(
    trx,
    sql<{ port_id: string }>`SELECT port_id FROM fixed_ip WHERE subnet_id = ${id} AND address = ${gateway}`,
  )
  if (port === undefined) return
  throw conflict(
    'GatewayIpInUse',
    `Current gateway ip ${gateway} already in use by port ${port.port_id}. Unable to update.`,
  )
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const row = await lockOwned(trx, subnetSource, caller, id, 'delete_subnet')
  if (isUsedByControllers(row.network_built_in)) throw inUse(id, 'The load balancer service needs it.')
  try {
    await execute(trx, sql`DELETE FROM subnet WHERE id = ${id}`)
  } catch (error) {
    if (sqlState(error) !== FOREIGN_KEY_VIOLATION) throw error
    throw inUse(id, 'One or more ports have an IP allocation from this subnet.')
  }
}

const inUse = (id: string, reason: string) =>
  conflict('SubnetInUse', `Unable to complete operation on subnet ${id}: ${reason}`)
