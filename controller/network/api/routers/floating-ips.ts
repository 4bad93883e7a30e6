import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { assignments, insertion, sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import { ROUTER_PORT_OWNER } from '../../driver.js'
import { insertPort } from '../../local/ports.js'
import { isAdmin, ownObjects } from '../../visibility.js'
import { attribute, parseAttributes, requireAttributes } from '../body.js'
import { networkSource } from '../networks/networks.js'
import { badRequest, notAuthorized, notFound } from '../neutron-error.js'
import { placeIpv4 } from '../ports/fixed-ips.js'
import { PORT_STATUS } from '../ports/port-source.js'
import { chargeQuota } from '../quotas.js'
import {
  CHANGED,
  type ChangeableResource,
  type CommonRow,
  changeableResource,
  commonColumns,
  type Item,
  lockOwned,
  namelessFilters,
  ownerOf,
  presentNameless,
  requireWriter,
} from '../resource.js'
import { type Source, selectOne, tagFilters } from '../select.js'
import { changeAssociation } from './association.js'
import type { RouterSettings } from './routers.js'

type PortDetails = {
  name: string
  network_id: string
  mac_address: string
  admin_state_up: boolean
  status: string
  device_id: string
  device_owner: string
}

export type FloatingIpRow = CommonRow & {
  floating_network_id: string
  floating_port_id: string
  floating_ip_address: string
  fixed_ip_address: string | null
  router_id: string | null
  port_id: string | null
  port_details: PortDetails | null
}

/** Active while it leads somewhere. */
const STATUS = sql`(CASE WHEN floatingip.router_id IS NULL THEN 'DOWN' ELSE 'ACTIVE' END)`

export const floatingIpSource: Source<FloatingIpRow> & { kind: 'floatingip' } = {
  kind: 'floatingip',
  table: 'floating_ip',
  select: sql<FloatingIpRow>`${commonColumns('floatingip', ['name'])}, floatingip.floating_network_id, floatingip.floating_port_id,
    host(outer_ip.address) AS floating_ip_address, host(floatingip.fixed_ip_address) AS fixed_ip_address,
    floatingip.router_id, port.id AS port_id,
    CASE WHEN port.id IS NOT NULL THEN json_build_object(
      'name', port.name, 'network_id', port.network_id, 'mac_address', port.mac_address,
      'admin_state_up', port.admin_state_up, 'status', ${PORT_STATUS}, 'device_id', port.device_id,
      'device_owner', port.device_owner) END AS port_details`,
  from: sql`floating_ip floatingip
    JOIN fixed_ip outer_ip ON outer_ip.port_id = floatingip.floating_port_id
    LEFT JOIN fixed_ip inner_ip
      ON inner_ip.subnet_id = floatingip.fixed_subnet_id AND inner_ip.address = floatingip.fixed_ip_address
    LEFT JOIN port ON port.id = inner_ip.port_id`,
  visible: ownObjects('floatingip'),
  columns: {
    ...namelessFilters('floatingip'),
    floating_network_id: { sql: sql`floatingip.floating_network_id`, kind: 'uuid' },
    floating_ip_address: { sql: sql`outer_ip.address`, kind: 'address' },
    fixed_ip_address: { sql: sql`floatingip.fixed_ip_address`, kind: 'address' },
    router_id: { sql: sql`floatingip.router_id`, kind: 'uuid' },
    port_id: { sql: sql`port.id`, kind: 'uuid' },
    status: { sql: STATUS, kind: 'text' },
    qos_policy_id: { constant: null },
    dns_name: { constant: '' },
    dns_domain: { constant: '' },
  },
  filters: tagFilters('floatingip'),
}

export const presentFloatingIp = (row: FloatingIpRow): Item => ({
  ...presentNameless(row),
  status: row.router_id === null ? 'DOWN' : 'ACTIVE',
  floating_network_id: row.floating_network_id,
  floating_ip_address: row.floating_ip_address,
  fixed_ip_address: row.fixed_ip_address,
  router_id: row.router_id,
  port_id: row.port_id,
  port_details: row.port_details,
  port_forwardings: [],
  qos_policy_id: null,
  dns_name: '',
  dns_domain: '',
})

const noDns = z.literal('', { error: 'this service has no DNS integration' }).nullable()

const changeable = {
  description: attribute.text,
  port_id: attribute.id.nullable(),
  fixed_ip_address: attribute.address.nullable(),
  qos_policy_id: z.null({ error: 'this service has no QoS policies' }),
}

export const updateSchema = z.strictObject(changeable).partial()

export const createSchema = z
  .strictObject({
    ...changeable,
    floating_ip_address: attribute.address.nullable(),
    subnet_id: attribute.id.nullable(),
    dns_name: noDns,
    dns_domain: noDns,
    project_id: attribute.projectId,
    tenant_id: attribute.projectId,
  })
  .partial()
  .extend({ floating_network_id: attribute.id })

/** Floating IPs in Krater's own tables. */
export const createFloatingIps = (database: Database, config: RouterSettings): ChangeableResource =>
  changeableResource(database, {
    source: floatingIpSource,
    present: presentFloatingIp,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update,
    remove,
  })

async function create(
  trx: Knex,
  caller: Caller,
  attributes: unknown,
  { quota, shared_addresses }: RouterSettings,
): Promise<string> {
  requireWriter(caller, 'create_floatingip')
  requireAttributes(attributes, ['floating_network_id'])
  const body = parseAttributes(createSchema, attributes)
  const owner = ownerOf(caller, body, 'create_floatingip')
  const { floating_network_id: networkId, floating_ip_address: address = null, subnet_id: subnetId = null } = body
  if (address !== null && !isAdmin(caller)) throw notAuthorized('create_floatingip:floating_ip_address')
  const network = await selectOne(trx, networkSource, caller, networkId)
  if (network === null) throw notFound('network', networkId)
  if (!network.external) throw badRequest('floatingip', `Network ${networkId} is not a valid external network`)
  await chargeQuota(trx, owner, 'floatingip', quota)
  const { id } = await one(trx, sql<{ id: string }>`SELECT gen_random_uuid() AS id`)
  const portId = await insertPort(trx, {
    network_id: networkId,
    project_id: owner,
    name: '',
    device_id: id,
    device_owner: ROUTER_PORT_OWNER.floatingIp,
    ensured_name: null,
  })
  if (portId === null) throw new Error(`Floating IP ${id} got no port on network ${networkId}`)
  const wanted =
    address === null && subnetId === null
      ? undefined
      : { subnet_id: subnetId ?? undefined, ip_address: address ?? undefined }
  await placeIpv4(trx, { id: portId, networkId, projectId: owner }, wanted, shared_addresses)
  const columns = {
    ...{ id, project_id: owner, description: body.description ?? '' },
    ...{ floating_network_id: networkId, floating_port_id: portId },
  }
  await execute(trx, sql`INSERT INTO floating_ip ${insertion([columns])}`)
  await changeAssociation(trx, caller, id, body)
  return id
}

async function update(trx: Knex, caller: Caller, id: string, attributes: unknown): Promise<void> {
  await lockOwned(trx, floatingIpSource, caller, id, 'update_floatingip')
  const body = parseAttributes(updateSchema, attributes)
  await changeAssociation(trx, caller, id, body)
  const values = assignments({ description: body.description, ...CHANGED })
  await execute(trx, sql`UPDATE floating_ip SET ${values} WHERE id = ${id}`)
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const { floating_port_id } = await lockOwned(trx, floatingIpSource, caller, id, 'delete_floatingip')
  await execute(trx, sql`DELETE FROM floating_ip WHERE id = ${id}`)
  await execute(trx, sql`DELETE FROM port WHERE id = ${floating_port_id}`)
}
