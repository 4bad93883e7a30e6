import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, maybeOne } from '../../../database/query.js'
import { assignments, insertion, sql } from '../../../database/sql.js'
import { sqlState } from '../../../database/transaction.js'
import type { Caller } from '../../../identity/caller.js'
import { isAdmin, OUTER_PORTS, visibleNetworks } from '../../visibility.js'
import { attribute, parseAttributes } from '../body.js'
import { conflict, invalidInput, type NeutronError, notAuthorized } from '../neutron-error.js'
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
  presentCommon,
  requireWriter,
} from '../resource.js'
import { type Source, tagFilters } from '../select.js'
import {
  chooseProvider,
  PROVIDER_ATTRIBUTES,
  type ProviderColumns,
  providerAttributes,
  providerInUse,
} from './provider.js'

export type NetworkRow = CommonRow & {
  admin_state_up: boolean
  shared: boolean
  external: boolean
  mtu: number
  built_in: string | null
  port_security_enabled: boolean
  subnets: string[]
} & ProviderColumns

export const networkSource: Source<NetworkRow> & { kind: 'network' } = {
  kind: 'network',
  table: 'network',
  select: sql<NetworkRow>`${commonColumns('network')}, network.admin_state_up, network.shared, network.external, network.mtu, network.built_in,
    network.port_security_enabled, network.network_type, network.physical_network, network.segmentation_id,
    ARRAY(SELECT subnet.id FROM subnet WHERE subnet.network_id = network.id ORDER BY subnet.created_at, subnet.id) AS subnets`,
  from: sql`network`,
  visible: visibleNetworks,
  columns: {
    ...commonFilters('network'),
    admin_state_up: { sql: sql`network.admin_state_up`, kind: 'boolean' },
    shared: { sql: sql`network.shared`, kind: 'boolean' },
    'router:external': { sql: sql`network.external`, kind: 'boolean' },
    mtu: { sql: sql`network.mtu`, kind: 'integer' },
    status: { constant: 'ACTIVE' },
    is_default: { constant: 'false' },
    availability_zone_hints: { constant: null },
    ipv4_address_scope: { constant: null },
    ipv6_address_scope: { constant: null },
    port_security_enabled: { sql: sql`network.port_security_enabled`, kind: 'boolean' },
    'provider:network_type': { sql: sql`network.network_type`, kind: 'text', hidden: true },
    'provider:physical_network': { sql: sql`network.physical_network`, kind: 'text', hidden: true },
    'provider:segmentation_id': { sql: sql`network.segmentation_id`, kind: 'integer', hidden: true },
  },
  filters: tagFilters('network'),
}

/** Only administrators see the provider attributes. */
export const presentNetwork = (row: NetworkRow, caller: Pick<Caller, 'roles'>): Item => ({
  ...presentCommon(row),
  admin_state_up: row.admin_state_up,
  status: 'ACTIVE',
  shared: row.shared,
  'router:external': row.external,
  is_default: false,
  mtu: row.mtu,
  subnets: row.subnets,
  availability_zones: [],
  availability_zone_hints: [],
  ipv4_address_scope: null,
  ipv6_address_scope: null,
  port_security_enabled: row.port_security_enabled,
  ...(isAdmin(caller)
    ? {
        'provider:network_type': row.network_type,
        'provider:physical_network': row.physical_network,
        'provider:segmentation_id': row.segmentation_id,
      }
    : {}),
})

const changeable = {
  name: attribute.text,
  description: attribute.text,
  admin_state_up: attribute.boolean,
  shared: attribute.boolean,
  'router:external': attribute.boolean,
  port_security_enabled: attribute.boolean,
}

export const updateSchema = z.strictObject({ ...changeable, ...providerAttributes }).partial()

export const createSchema = z
  .strictObject({
    ...changeable,
    ...providerAttributes,
    mtu: attribute.integer(1280, 9216),
    project_id: attribute.projectId,
    tenant_id: attribute.projectId,
    is_default: z.literal(false, { error: 'only false is supported' }),
    availability_zone_hints: attribute.emptyList,
  })
  .partial()

export const inUse = (id: string, reason: string): NeutronError =>
  conflict('NetworkInUse', `Unable to complete operation on network ${id}. ${reason}`)

export type NetworkSettings = QuotaSettings & { physical_networks: Readonly<Record<string, unknown>> }

/** Networks in Krater's own tables. */
export const createNetworks = (database: Database, config: NetworkSettings): ChangeableResource =>
  changeableResource(database, {
    source: networkSource,
    present: presentNetwork,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update,
    remove,
  })

type Restricted = Partial<Record<'shared' | 'router:external' | keyof typeof providerAttributes, unknown>>

function requireAdminRights(caller: Caller, body: Restricted, verb: string) {
  if (isAdmin(caller)) return
  for (const name of ['shared', 'router:external'] as const) {
    if (body[name] !== undefined && (body[name] || verb === 'update')) throw notAuthorized(`${verb}_network:${name}`)
  }
  const provider = PROVIDER_ATTRIBUTES.find(name => body[name] !== undefined)
  if (provider !== undefined) throw notAuthorized(`${verb}_network:${provider}`)
}

async function create(
  trx: Knex,
  caller: Caller,
  attributes: unknown,
  { quota, physical_networks }: NetworkSettings,
): Promise<string> {
  requireWriter(caller, 'create_network')
  const body = parseAttributes(createSchema, attributes)
  const owner = ownerOf(caller, body, 'create_network')
  requireAdminRights(caller, body, 'create')
  const provider = chooseProvider(body, Object.keys(physical_networks))
  await chargeQuota(trx, owner, 'network', quota)
  const row = {
    project_id: owner,
    name: body.name ?? '',
    description: body.description ?? '',
    admin_state_up: body.admin_state_up ?? true,
    shared: body.shared ?? false,
    external: body['router:external'] ?? false,
    mtu: body.mtu ?? 1500,
    port_security_enabled: body.port_security_enabled ?? true,
    ...provider,
  }
  const made = await maybeOne(
    trx,
    sql<{ id: string }>`INSERT INTO network ${insertion([row])} ON CONFLICT DO NOTHING RETURNING id`,
  )
  if (made === undefined) throw providerInUse(provider)
  return made.id
}

async function update(trx: Knex, caller: Caller, id: string, attributes: unknown): Promise<void> {
  const row = await lockOwned(trx, networkSource, caller, id, 'update_network')
  const body = parseAttributes(updateSchema, attributes)
  requireAdminRights(caller, body, 'update')
  if (PROVIDER_ATTRIBUTES.some(name => body[name] !== undefined)) {
    throw invalidInput('Plugin does not support updating provider attributes')
  }
  if (row.shared && body.shared === false) await refuseIfOthersUseIt(trx, row)
  if (row.external && body['router:external'] === false) await refuseIfGatewaysUseIt(trx, id)
  const { name, description, admin_state_up, shared, 'router:external': external, port_security_enabled } = body
  const given = { name, description, admin_state_up, shared, external, port_security_enabled }
  const values = assignments({ ...given, ...CHANGED })
  await execute(trx, sql`UPDATE network SET ${values} WHERE id = ${id}`)
}

async function refuseIfOthersUseIt(trx: Knex, { id, project_id, name }: NetworkRow): Promise<void> {
  const foreign = await maybeOne(
    trx,
    sql`SELECT id FROM port
         WHERE network_id = ${id} AND project_id <> ${project_id} AND NOT ${OUTER_PORTS} LIMIT 1`,
  )
  if (foreign === undefined) return
  throw conflict(
    'InvalidSharedSetting',
    `Unable to reconfigure sharing settings for network ${name}. Multiple tenants are using it.`,
  )
}

/** Routers may have their gateways and floating IPs on any external network, shared or not. */
async function refuseIfGatewaysUseIt(trx: Knex, id: string): Promise<void> {
  const used = await maybeOne(trx, sql`SELECT id FROM port WHERE network_id = ${id} AND ${OUTER_PORTS} LIMIT 1`)
  if (used === undefined) return
  throw conflict(
    'ExternalNetworkInUse',
    `External network ${id} cannot be updated to be made non-external, since it has existing gateway ports.`,
  )
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const row = await lockOwned(trx, networkSource, caller, id, 'delete_network')
  if (isUsedByControllers(row.built_in)) throw inUse(id, `The load balancer service needs its ${row.built_in} network.`)
  // As in Neutron: floating IPs that lead nowhere go with their network.
  await execute(
    trx,
    sql`WITH idle AS (DELETE FROM floating_ip WHERE floating_network_id = ${id} AND router_id IS NULL RETURNING floating_port_id)
        DELETE FROM port WHERE id IN (SELECT floating_port_id FROM idle)`,
  )
  try {
    await execute(trx, sql`DELETE FROM network WHERE id = ${id}`)
  } catch (error) {
    if (sqlState(error) !== FOREIGN_KEY_VIOLATION) throw error
    throw inUse(id, 'There are one or more ports still in use on the network.')
  }
}

/** Networks that the controllers themselves use. */
export const isUsedByControllers = (builtIn: string | null): boolean => builtIn === 'management' || builtIn === 'public'
