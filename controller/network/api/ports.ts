import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../database/connection.js'
import { execute, maybeOne } from '../../database/query.js'
import { and, assignments, type Fragment, sql } from '../../database/sql.js'
import type { Caller } from '../../identity/caller.js'
import { normaliseAddress } from '../addresses.js'
import { InvalidPortRequest } from '../driver.js'
import { FIXED_IPS, insertPort } from '../local/ports.js'
import type { SharedAddresses } from '../local/shared-addresses.js'
import { isAdmin, isUuid, visiblePorts } from '../visibility.js'
import { attribute, parseAttributes, requireAttributes } from './body.js'
import { placeFixedIps, replaceFixedIps } from './fixed-ips.js'
import { networkSource } from './networks.js'
import { conflict, invalidRequest, notAuthorized, notFound } from './neutron-error.js'
import { chargeQuota, type QuotaSettings } from './quotas.js'
import {
  CHANGED,
  type CommonRow,
  commonColumns,
  commonFilters,
  type Item,
  ownerOf,
  owns,
  presentCommon,
  type Resource,
  requireWriter,
  tableResource,
} from './resource.js'
import { type Source, selectOne, tagFilters } from './select.js'

export type PortRow = CommonRow & {
  network_id: string
  network_project_id: string
  admin_state_up: boolean
  mac_address: string
  device_id: string
  device_owner: string
  status: string
  fixed_ips: { subnet_id: string; ip_address: string }[]
  allowed_addresses: string[]
}

/** Active if a device uses the port and its owner has not disabled it. */
const STATUS = sql`(CASE WHEN port.device_id <> '' AND port.admin_state_up THEN 'ACTIVE' ELSE 'DOWN' END)`

export const portSource: Source<PortRow> = {
  kind: 'port',
  select: sql<PortRow>`${commonColumns('port')}, port.network_id, network.project_id AS network_project_id, port.admin_state_up,
    port.mac_address::text AS mac_address, port.device_id, port.device_owner, port.allowed_addresses, ${STATUS} AS status, ${FIXED_IPS} AS fixed_ips`,
  from: sql`port JOIN network ON network.id = port.network_id`,
  visible: visiblePorts,
  columns: {
    ...commonFilters('port'),
    network_id: { sql: sql`port.network_id`, kind: 'uuid' },
    admin_state_up: { sql: sql`port.admin_state_up`, kind: 'boolean' },
    mac_address: { sql: sql`port.mac_address`, kind: 'mac' },
    device_id: { sql: sql`port.device_id`, kind: 'text' },
    device_owner: { sql: sql`port.device_owner`, kind: 'text' },
    status: { sql: STATUS, kind: 'text' },
    security_groups: { constant: null },
    security_group_ids: { constant: null },
    'binding:vnic_type': { constant: 'normal' },
    'binding:host_id': { constant: null },
  },
  filters: {
    ...tagFilters('port'),
    fixed_ips: fixedIpsFilter,
    ip_address: values => fixedIpsFilter(values.map(value => `ip_address=${value}`)),
    subnet_id: values => fixedIpsFilter(values.map(value => `subnet_id=${value}`)),
  },
}

/** `subnet_id=...` and `ip_address=...`: one address of the port must match one value of each key. */
function fixedIpsFilter(values: readonly string[]): Fragment {
  const given: Record<'subnet_id' | 'ip_address' | 'ip_address_substr', string[]> = {
    subnet_id: [],
    ip_address: [],
    ip_address_substr: [],
  }
  for (const value of values) {
    const [key = '', ...rest] = value.split('=')
    if (!Object.hasOwn(given, key)) throw invalidRequest(`'${value}' is an invalid fixed_ips filter`)
    given[key as keyof typeof given].push(rest.join('='))
  }
  const { subnet_id: subnets, ip_address, ip_address_substr } = given
  const addresses = ip_address.map(normaliseAddress).filter(address => address !== null)
  const parts = ip_address_substr.filter(part => /^[0-9a-fA-F.:]+$/.test(part))
  const conditions = [
    sql`fixed_ip.port_id = port.id`,
    ...(subnets.length > 0 ? [sql`fixed_ip.subnet_id = ANY(${subnets.filter(isUuid)}::uuid[])`] : []),
    ...(ip_address.length > 0 ? [sql`fixed_ip.address = ANY(${addresses}::inet[])`] : []),
    ...(ip_address_substr.length > 0
      ? [sql`EXISTS (SELECT 1 FROM unnest(${parts}::text[]) part WHERE position(part IN host(fixed_ip.address)) > 0)`]
      : []),
  ]
  return sql`EXISTS (SELECT 1 FROM fixed_ip WHERE ${and(conditions)})`
}

export const presentPort = (row: PortRow): Item => ({
  ...presentCommon(row),
  network_id: row.network_id,
  admin_state_up: row.admin_state_up,
  status: row.status,
  mac_address: row.mac_address,
  device_id: row.device_id,
  device_owner: row.device_owner,
  fixed_ips: row.fixed_ips,
  security_groups: [],
  allowed_address_pairs: row.allowed_addresses.map(ip_address => ({ ip_address, mac_address: row.mac_address })),
  extra_dhcp_opts: [],
  'binding:vnic_type': 'normal',
})

const fixedIps = z
  .array(z.strictObject({ subnet_id: attribute.id, ip_address: attribute.address }).partial())
  .max(5, { error: 'exceeded maximum amount of fixed ips per port' })

const changeable = {
  name: attribute.text,
  description: attribute.text,
  admin_state_up: attribute.boolean,
  mac_address: attribute.macAddress,
  device_id: attribute.text,
  device_owner: attribute.text,
  fixed_ips: fixedIps,
  security_groups: attribute.emptyList,
  allowed_address_pairs: attribute.emptyList,
  extra_dhcp_opts: attribute.emptyList,
  'binding:vnic_type': z.literal('normal', { error: `only 'normal' is supported` }),
}

export const updateSchema = z.strictObject(changeable).partial()

export const createSchema = z
  .strictObject({ ...changeable, project_id: attribute.projectId, tenant_id: attribute.projectId })
  .partial()
  .extend({ network_id: attribute.id })

export type PortSettings = QuotaSettings & { shared_addresses: SharedAddresses }

/** Ports in Krater's own tables. */
export const createPorts = (database: Database, config: PortSettings): Resource =>
  tableResource(database, {
    plural: 'ports',
    source: portSource,
    present: presentPort,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update: (trx, caller, id, body) => update(trx, caller, id, body, config),
    remove,
  })

/** Whether the load balancer service made or uses the port. */
const isServicePort = ({ device_owner }: { device_owner: string }) => device_owner.startsWith('Octavia')

/** Tenants may not forge the device_owner of services: the orphan sweep and other rules rely on it. */
function requireDeviceRights(caller: Caller, deviceOwner: string | undefined, verb: string): void {
  if (deviceOwner === undefined || isAdmin(caller)) return
  if (deviceOwner.startsWith('network:') || isServicePort({ device_owner: deviceOwner })) {
    throw notAuthorized(`${verb}_port:device_owner`)
  }
}

async function create(trx: Knex, caller: Caller, attributes: unknown, config: PortSettings): Promise<Item> {
  requireWriter(caller, 'create_port')
  requireAttributes(attributes, ['network_id'])
  const body = parseAttributes(createSchema, attributes)
  const network = await selectOne(trx, networkSource, caller, body.network_id)
  if (network === null) throw notFound('network', body.network_id)
  if (!network.shared && !owns(caller, network)) throw notAuthorized('create_port')
  if (body.mac_address !== undefined && !owns(caller, network)) throw notAuthorized('create_port:mac_address')
  requireDeviceRights(caller, body.device_owner, 'create')
  const projectId = ownerOf(caller, body, 'create_port')
  await chargeQuota(trx, projectId, 'port', config.quota)
  const id = await insertPort(trx, {
    network_id: network.id,
    project_id: projectId,
    name: body.name ?? '',
    description: body.description ?? '',
    admin_state_up: body.admin_state_up ?? true,
    mac_address: body.mac_address,
    device_id: body.device_id ?? '',
    device_owner: body.device_owner ?? '',
    ensured_name: null,
  }).catch(error => {
    throw error instanceof InvalidPortRequest ? notFound('network', network.id) : error
  })
  if (id === null) throw macInUse(network.id, body.mac_address)
  await placeFixedIps(trx, { id, networkId: network.id, projectId }, body.fixed_ips, config.shared_addresses)
  return shown(trx, caller, id)
}

const macInUse = (networkId: string, mac: string | undefined) =>
  conflict(
    'MacAddressInUse',
    `Unable to complete operation for network ${networkId}. The mac address ${mac} is in use.`,
  )

async function update(
  trx: Knex,
  caller: Caller,
  id: string,
  attributes: unknown,
  { shared_addresses }: PortSettings,
): Promise<Item> {
  const row = await lockPort(trx, caller, id)
  requireWriter(caller, 'update_port')
  if (!owns(caller, row)) throw notAuthorized('update_port')
  const body = parseAttributes(updateSchema, attributes)
  requireDeviceRights(caller, body.device_owner, 'update')
  const { name, description, admin_state_up, mac_address, device_id, device_owner, fixed_ips } = body
  const changesUse = [mac_address, device_id, device_owner, fixed_ips].some(value => value !== undefined)
  if (changesUse && isServicePort(row) && !isAdmin(caller)) {
    throw conflict('PortInUse', `Unable to complete operation on port ${id}. The load balancer service uses it.`)
  }
  if (mac_address !== undefined && mac_address !== row.mac_address) {
    if (!isAdmin(caller)) throw notAuthorized('update_port:mac_address')
    const other = await maybeOne(
      trx,
      sql`SELECT id FROM port WHERE network_id = ${row.network_id} AND mac_address = ${mac_address}`,
    )
    if (other !== undefined) throw macInUse(row.network_id, mac_address)
  }
  if (fixed_ips !== undefined) {
    const port = { id, networkId: row.network_id, projectId: row.project_id, fixedIps: row.fixed_ips }
    await replaceFixedIps(trx, port, fixed_ips, shared_addresses)
  }
  const values = assignments({
    ...{ name, description, admin_state_up, mac_address, device_id, device_owner },
    ...CHANGED,
  })
  await execute(trx, sql`UPDATE port SET ${values} WHERE id = ${id}`)
  return shown(trx, caller, id)
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const row = await lockPort(trx, caller, id)
  requireWriter(caller, 'delete_port')
  if (!owns(caller, row) && !owns(caller, { project_id: row.network_project_id })) throw notAuthorized('delete_port')
  if (isServicePort(row) && !isAdmin(caller)) {
    throw conflict(
      'ServicePortInUse',
      `Port ${id} cannot be deleted directly via the port API: has device owner ${row.device_owner}.`,
    )
  }
  await execute(trx, sql`DELETE FROM port WHERE id = ${id}`)
}

async function lockPort(trx: Knex, caller: Caller, id: string): Promise<PortRow> {
  const row = await selectOne(trx, portSource, caller, id, true)
  if (row === null) throw notFound('port', id)
  return row
}

async function shown(trx: Knex, caller: Caller, id: string): Promise<Item> {
  return presentPort((await selectOne(trx, portSource, caller, id))!)
}
