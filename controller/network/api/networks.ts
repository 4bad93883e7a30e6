import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../database/connection.js'
import { execute, maybeOne, one } from '../../database/query.js'
import { assignments, insertion, sql } from '../../database/sql.js'
import { sqlState } from '../../database/transaction.js'
import type { Caller } from '../../identity/caller.js'
import { isAdmin, visibleNetworks } from '../visibility.js'
import { attribute, parseAttributes } from './body.js'
import { conflict, type NeutronError, notAuthorized } from './neutron-error.js'
import { chargeQuota, type QuotaSettings } from './quotas.js'
import {
  CHANGED,
  type CommonRow,
  commonColumns,
  commonFilters,
  type Item,
  lockOwned,
  ownerOf,
  presentCommon,
  type Resource,
  requireWriter,
  tableResource,
} from './resource.js'
import { type Source, selectOne, tagFilters } from './select.js'

export type NetworkRow = CommonRow & {
  admin_state_up: boolean
  shared: boolean
  external: boolean
  mtu: number
  built_in: string | null
  subnets: string[]
}

export const networkSource: Source<NetworkRow> = {
  kind: 'network',
  select: sql<NetworkRow>`${commonColumns('network')}, network.admin_state_up, network.shared, network.external, network.mtu, network.built_in,
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
    'provider:network_type': { constant: null },
    'provider:physical_network': { constant: null },
    'provider:segmentation_id': { constant: null },
  },
  filters: tagFilters('network'),
}

export const presentNetwork = (row: NetworkRow): Item => ({
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
})

const changeable = {
  name: attribute.text,
  description: attribute.text,
  admin_state_up: attribute.boolean,
  shared: attribute.boolean,
  'router:external': attribute.boolean,
}

export const updateSchema = z.strictObject(changeable).partial()

export const createSchema = z
  .strictObject({
    ...changeable,
    mtu: attribute.integer(1280, 9216),
    project_id: attribute.projectId,
    tenant_id: attribute.projectId,
    is_default: z.literal(false, { error: 'only false is supported' }),
    availability_zone_hints: attribute.emptyList,
  })
  .partial()

export const inUse = (id: string, reason: string): NeutronError =>
  conflict('NetworkInUse', `Unable to complete operation on network ${id}. ${reason}`)

/** Networks in Krater's own tables. */
export const createNetworks = (database: Database, config: QuotaSettings): Resource =>
  tableResource(database, {
    plural: 'networks',
    source: networkSource,
    present: presentNetwork,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update,
    remove,
  })

function requireSharingRights(caller: Caller, body: { shared?: boolean; 'router:external'?: boolean }, verb: string) {
  if (isAdmin(caller)) return
  for (const name of ['shared', 'router:external'] as const) {
    if (body[name] !== undefined && (body[name] || verb === 'update')) throw notAuthorized(`${verb}_network:${name}`)
  }
}

async function create(trx: Knex, caller: Caller, attributes: unknown, { quota }: QuotaSettings): Promise<Item> {
  requireWriter(caller, 'create_network')
  const { tenant_id, project_id, is_default, availability_zone_hints, ...body } = parseAttributes(
    createSchema,
    attributes,
  )
  const owner = ownerOf(caller, { tenant_id, project_id }, 'create_network')
  requireSharingRights(caller, body, 'create')
  await chargeQuota(trx, owner, 'network', quota)
  const { 'router:external': external, ...columns } = body
  const row = { ...columns, ...(external === undefined ? {} : { external }), project_id: owner }
  const { id } = await one(trx, sql<{ id: string }>`INSERT INTO network ${insertion([row])} RETURNING id`)
  return shown(trx, caller, id)
}

async function update(trx: Knex, caller: Caller, id: string, attributes: unknown): Promise<Item> {
  const row = await lockOwned(trx, networkSource, caller, id, 'update_network')
  const body = parseAttributes(updateSchema, attributes)
  requireSharingRights(caller, body, 'update')
  if (row.shared && body.shared === false) await refuseIfOthersUseIt(trx, row)
  const { 'router:external': external, ...columns } = body
  const values = assignments({ ...columns, external, ...CHANGED })
  await execute(trx, sql`UPDATE network SET ${values} WHERE id = ${id}`)
  return shown(trx, caller, id)
}

async function refuseIfOthersUseIt(trx: Knex, { id, project_id, name }: NetworkRow): Promise<void> {
  const foreign = await maybeOne(
    trx,
    sql`SELECT id FROM port WHERE network_id = ${id} AND project_id <> ${project_id} LIMIT 1`,
  )
  if (foreign === undefined) return
  throw conflict(
    'InvalidSharedSetting',
    `Unable to reconfigure sharing settings for network ${name}. Multiple tenants are using it.`,
  )
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const row = await lockOwned(trx, networkSource, caller, id, 'delete_network')
  if (isUsedByControllers(row.built_in)) throw inUse(id, `The load balancer service needs its ${row.built_in} network.`)
  try {
    await execute(trx, sql`DELETE FROM network WHERE id = ${id}`)
  } catch (error) {
    if (sqlState(error) !== FOREIGN_KEY_VIOLATION) throw error
    throw inUse(id, 'There are one or more ports still in use on the network.')
  }
}

/** Networks that the controllers themselves use. */
export const isUsedByControllers = (builtIn: string | null): boolean => builtIn === 'management' || builtIn === 'public'

export const FOREIGN_KEY_VIOLATION = '23503'

async function shown(trx: Knex, caller: Caller, id: string): Promise<Item> {
  return presentNetwork((await selectOne(trx, networkSource, caller, id))!)
}
