import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, many, maybeOne } from '../../../database/query.js'
import { assignments, sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import { isHiddenOwner, ROUTER_PORT_OWNERS } from '../../driver.js'
import { insertPort } from '../../local/ports.js'
import type { SharedAddresses } from '../../local/shared-addresses.js'
import { isAdmin } from '../../visibility.js'
import { attribute, parseAttributes, requireAttributes } from '../body.js'
import { networkSource } from '../networks/networks.js'
import { badRequest, conflict, invalidInput, notAuthorized, notFound } from '../neutron-error.js'
import { chargeQuota, type QuotaSettings } from '../quotas.js'
import { CHANGED, type ChangeableResource, changeableResource, ownerOf, owns, requireWriter } from '../resource.js'
import { ensureDefaultGroup } from '../security-groups/default-group.js'
import { selectOne } from '../select.js'
import { addressPairs, setAddressPairs } from './address-pairs.js'
import { compareFixedIps, placeFixedIps, type RequestedFixedIp, replaceFixedIps } from './fixed-ips.js'
import { chooseSecurity, requireSecurityRights, setGroups } from './port-security.js'
import { type PortRow, portSource, presentPort } from './port-source.js'

const fixedIps = z
  .array(z.strictObject({ subnet_id: attribute.id, ip_address: attribute.address }).partial())
  .max(5, { error: 'exceeded maximum amount of fixed ips per port' })

/** Each group of a port is a part of its filter. */
const MAX_GROUPS = 20

const changeable = {
  name: attribute.text,
  description: attribute.text,
  admin_state_up: attribute.boolean,
  mac_address: attribute.macAddress,
  device_id: attribute.text,
  device_owner: attribute.text,
  fixed_ips: fixedIps,
  security_groups: z
    .array(attribute.id)
    .max(MAX_GROUPS, { error: `the maximum is ${MAX_GROUPS} security groups` })
    .nullable()
    .transform(ids => [...new Set(ids)]),
  port_security_enabled: attribute.boolean,
  allowed_address_pairs: addressPairs,
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
export const createPorts = (database: Database, config: PortSettings): ChangeableResource =>
  changeableResource(database, {
    source: portSource,
    present: presentPort,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update: (trx, caller, id, body) => update(trx, caller, id, body, config),
    remove,
  })

const ROUTER_OWNERS: ReadonlySet<string> = new Set(ROUTER_PORT_OWNERS)

type Owned = { device_owner: string }

/** Whether the load balancer service made or uses the port. */
const isServicePort = ({ device_owner }: Owned) => device_owner.startsWith('Octavia') || isHiddenPort({ device_owner })

/** Whether a service uses it for itself: what it holds is not on behalf of the port's project. */
const isHiddenPort = ({ device_owner }: Owned) => isHiddenOwner(device_owner)

/** Whether a router or a floating IP has the port. */
const isRouterPort = ({ device_owner }: Owned) => ROUTER_OWNERS.has(device_owner)

/** Tenants may not forge the device_owner of services: the orphan sweep and other rules rely on it. */
function requireDeviceRights(caller: Caller, deviceOwner: string | undefined, verb: string): void {
  if (deviceOwner === undefined) return
  if (isRouterPort({ device_owner: deviceOwner })) {
    throw invalidInput(`only routers and floating IPs have ports with the device_owner ${deviceOwner}`)
  }
  if (isHiddenPort({ device_owner: deviceOwner })) {
    throw invalidInput(`only services of Krater have ports with the device_owner ${deviceOwner}`)
  }
  if (isAdmin(caller)) return
  if (deviceOwner.startsWith('network:') || isServicePort({ device_owner: deviceOwner })) {
    throw notAuthorized(`${verb}_port:device_owner`)
  }
}

async function create(trx: Knex, caller: Caller, attributes: unknown, config: PortSettings): Promise<string> {
  requireWriter(caller, 'create_port')
  requireAttributes(attributes, ['network_id'])
  const body = parseAttributes(createSchema, attributes)
  const network = await selectOne(trx, networkSource, caller, body.network_id)
  if (network === null) throw notFound('network', body.network_id)
  if (!network.shared && !owns(caller, network)) throw notAuthorized('create_port')
  // On a LAN, it could be the MAC address of anybody's machine, such as this machine's router.
  const choosesMac = network.network_type === 'local' ? owns(caller, network) : isAdmin(caller)
  if (body.mac_address !== undefined && !choosesMac) throw notAuthorized('create_port:mac_address')
  requireDeviceRights(caller, body.device_owner, 'create')
  const projectId = ownerOf(caller, body, 'create_port')
  requireSecurityRights(caller, network, body, network.port_security_enabled, 'create')
  await chargeQuota(trx, projectId, 'port', config.quota)
  const { device_owner = '' } = body
  const security = chooseSecurity(body, { device_owner, port_security_enabled: network.port_security_enabled })
  const id = await insertPort(trx, {
    network_id: network.id,
    project_id: projectId,
    name: body.name ?? '',
    description: body.description ?? '',
    admin_state_up: body.admin_state_up ?? true,
    mac_address: body.mac_address,
    device_id: body.device_id ?? '',
    device_owner,
    ensured_name: null,
    ...security,
  })
  if (id === null) throw macInUse(network.id, body.mac_address)
  const groups = body.security_groups ?? (security.filtered ? [await ensureDefaultGroup(trx, projectId)] : [])
  await setGroups(trx, caller, id, groups)
  await placeFixedIps(trx, { id, networkId: network.id, projectId }, body.fixed_ips, config.shared_addresses)
  if (body.allowed_address_pairs !== undefined) await setAddressPairs(trx, caller, id, body.allowed_address_pairs)
  return id
}

const macInUse = (networkId: string, mac: string | undefined) =>
  conflict(
    'MacAddressInUse',
    `Unable to complete operation for network ${networkId}. The mac address ${mac} is in use.`,
  )

/** Attributes that a port's user decides; whoever has given the port a purpose decides the others. */
const HARMLESS: ReadonlySet<string> = new Set([
  'name',
  'description',
  'admin_state_up',
  'extra_dhcp_opts',
  'binding:vnic_type',
])

async function update(
  trx: Knex,
  caller: Caller,
  id: string,
  attributes: unknown,
  { shared_addresses }: PortSettings,
): Promise<void> {
  const row = await lockPort(trx, caller, id)
  requireWriter(caller, 'update_port')
  if (!owns(caller, row)) throw notAuthorized('update_port')
  const body = parseAttributes(updateSchema, attributes)
  requireDeviceRights(caller, body.device_owner, 'update')
  const { name, description, admin_state_up, mac_address, device_id, device_owner, fixed_ips } = body
  const changesUse = Object.keys(body).some(
    name => !HARMLESS.has(name) && !(name === 'fixed_ips' && keepsAddresses(row, fixed_ips)),
  )
  if (changesUse && isRouterPort(row)) {
    throw conflict('PortInUse', `Unable to complete operation on port ${id}. It belongs to a router or floating IP.`)
  }
  if ((isHiddenPort(row) || (changesUse && isServicePort(row))) && !isAdmin(caller)) {
    const user = isHiddenPort(row) ? 'A service of Krater' : 'The load balancer service'
    throw conflict('PortInUse', `Unable to complete operation on port ${id}. ${user} uses it.`)
  }
  requireSecurityRights(caller, { project_id: row.network_project_id }, body, row.port_security_enabled, 'update')
  if (mac_address !== undefined && mac_address !== row.mac_address) {
    if (!isAdmin(caller)) throw notAuthorized('update_port:mac_address')
    const other = await maybeOne(
      trx,
      sql`SELECT id FROM port WHERE network_id = ${row.network_id} AND mac_address = ${mac_address}`,
    )
    if (other !== undefined) throw macInUse(row.network_id, mac_address)
  }
  if (fixed_ips !== undefined) await changeFixedIps(trx, row, fixed_ips, shared_addresses)
  const values = assignments({
    ...{ name, description, admin_state_up, mac_address, device_id, device_owner },
    ...chooseSecurity(body, row),
    ...CHANGED,
  })
  await execute(trx, sql`UPDATE port SET ${values} WHERE id = ${id}`)
  if (body.security_groups !== undefined) await setGroups(trx, caller, id, body.security_groups)
  if (body.allowed_address_pairs !== undefined) await setAddressPairs(trx, caller, id, body.allowed_address_pairs)
}

function keepsAddresses({ fixed_ips }: PortRow, desired: readonly RequestedFixedIp[] = []): boolean {
  const { gone, added } = compareFixedIps(fixed_ips, desired)
  return gone.length === 0 && added.length === 0
}

/** @throws NeutronError 400 if a floating IP leads to an address that would go */
async function changeFixedIps(
  trx: Knex,
  row: PortRow,
  desired: readonly RequestedFixedIp[],
  rules: SharedAddresses,
): Promise<void> {
  const { id, network_id: networkId, project_id: projectId, fixed_ips: fixedIps } = row
  const floating = await floatingAddressesOf(trx, id)
  await replaceFixedIps(trx, { id, networkId, projectId, fixedIps }, desired, rules)
  const kept = await floatingAddressesOf(trx, id)
  const lost = floating.find(({ fixed }) => !kept.some(other => other.fixed === fixed))
  if (lost === undefined) return
  throw badRequest(
    'port',
    `Cannot update the fixed_ips of port ${id}: floating IP ${lost.floating} is associated with ${lost.fixed}`,
  )
}

const floatingAddressesOf = (trx: Knex, portId: string) =>
  many(
    trx,
    sql<{ fixed: string; floating: string }>`
      SELECT host(floating_ip.fixed_ip_address) AS fixed, host(outer_ip.address) AS floating
        FROM floating_ip
        JOIN fixed_ip ON fixed_ip.subnet_id = floating_ip.fixed_subnet_id AND fixed_ip.address = floating_ip.fixed_ip_address
        JOIN fixed_ip outer_ip ON outer_ip.port_id = floating_ip.floating_port_id
       WHERE fixed_ip.port_id = ${portId}`,
  )

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const row = await lockPort(trx, caller, id)
  requireWriter(caller, 'delete_port')
  if (!owns(caller, row) && !owns(caller, { project_id: row.network_project_id })) throw notAuthorized('delete_port')
  const refusal = `Port ${id} cannot be deleted directly via the port API: has device owner ${row.device_owner}.`
  if (isRouterPort(row)) throw conflict('L3PortInUse', refusal)
  if (isServicePort(row) && !isAdmin(caller)) throw conflict('ServicePortInUse', refusal)
  await execute(trx, sql`DELETE FROM port WHERE id = ${id}`)
}

async function lockPort(trx: Knex, caller: Caller, id: string): Promise<PortRow> {
  const row = await selectOne(trx, portSource, caller, id, true)
  if (row === null) throw notFound('port', id)
  return row
}
