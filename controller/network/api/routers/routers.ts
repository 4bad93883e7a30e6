import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, one } from '../../../database/query.js'
import { assignments, insertion, json, sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import type { SharedAddresses } from '../../local/shared-addresses.js'
import { lockQuota } from '../../quota.js'
import { attribute, parseAttributes } from '../body.js'
import { conflict } from '../neutron-error.js'
import { chargeQuota, type QuotaSettings } from '../quotas.js'
import {
  CHANGED,
  type ChangeableResource,
  changeAt,
  changeableResource,
  type Item,
  lockOwned,
  ownerOf,
  requireWriter,
  shown,
  type Target,
} from '../resource.js'
import { selectOne } from '../select.js'
import { addRoutes, checkRoutes, removeRoutes, routes } from './extra-routes.js'
import { changeGateway, clearGateway, gatewayInfo, requireGatewayRights } from './gateway.js'
import { legsOf } from './legs.js'
import { presentRouter, type RouterRow, routerSource } from './router-source.js'

const changeable = {
  name: attribute.text,
  description: attribute.text,
  admin_state_up: attribute.boolean,
  external_gateway_info: gatewayInfo,
  distributed: z.literal(false, { error: 'only false is supported' }).nullable(),
  ha: z.literal(false, { error: 'only false is supported' }).nullable(),
}

export const updateSchema = z.strictObject({ ...changeable, routes: routes.nullable() }).partial()

export const createSchema = z
  .strictObject({
    ...changeable,
    availability_zone_hints: attribute.emptyList,
    flavor_id: z.null({ error: 'this service has no flavors' }),
    project_id: attribute.projectId,
    tenant_id: attribute.projectId,
  })
  .partial()

/** The body of add_extraroutes and remove_extraroutes. */
export const routesSchema = z.strictObject({ routes })

export type RouterSettings = QuotaSettings & { shared_addresses: SharedAddresses }

/** Routers in Krater's own tables. */
export const createRouters = (database: Database, config: RouterSettings): ChangeableResource =>
  changeableResource(database, {
    source: routerSource,
    present: presentRouter,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update: (trx, caller, id, body) => update(trx, caller, id, body, config),
    remove,
  })

async function create(trx: Knex, caller: Caller, attributes: unknown, config: RouterSettings): Promise<string> {
  requireWriter(caller, 'create_router')
  const body = parseAttributes(createSchema, attributes)
  const owner = ownerOf(caller, body, 'create_router')
  const { external_gateway_info: info = null } = body
  requireGatewayRights(caller, info, 'create')
  await chargeQuota(trx, owner, 'router', config.quota)
  const columns = {
    project_id: owner,
    name: body.name ?? '',
    description: body.description ?? '',
    admin_state_up: body.admin_state_up ?? true,
  }
  const { id } = await one(trx, sql<{ id: string }>`INSERT INTO router ${insertion([columns])} RETURNING id`)
  if (info !== null) {
    await changeGateway(trx, caller, { id, project_id: owner, gateway: null }, info, config.shared_addresses)
  }
  return id
}

async function update(
  trx: Knex,
  caller: Caller,
  id: string,
  attributes: unknown,
  { shared_addresses }: RouterSettings,
): Promise<void> {
  const body = parseAttributes(updateSchema, attributes)
  const { name, description, admin_state_up, external_gateway_info: info } = body
  // A gateway's address counts in the project's share: its quota row is locked before the router, as in a create.
  const found = info === undefined ? null : await selectOne(trx, routerSource, caller, id)
  if (found !== null) await lockQuota(trx, found.project_id)
  const row = await lockOwned(trx, routerSource, caller, id, 'update_router')
  if (info !== undefined) {
    requireGatewayRights(caller, info, 'update')
    await changeGateway(trx, caller, row, info, shared_addresses)
  }
  if (body.routes !== undefined) await storeRoutes(trx, id, body.routes ?? [])
  const values = assignments({ name, description, admin_state_up, ...CHANGED })
  await execute(trx, sql`UPDATE router SET ${values} WHERE id = ${id}`)
}

async function storeRoutes(trx: Knex, id: string, given: RouterRow['routes']): Promise<void> {
  const whole = addRoutes([], given)
  checkRoutes(id, whole, await legsOf(trx, id))
  await execute(trx, sql`UPDATE router SET routes = ${json(whole)} WHERE id = ${id}`)
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const row = await lockOwned(trx, routerSource, caller, id, 'delete_router')
  if ((await legsOf(trx, id)).some(({ gateway }) => !gateway)) {
    throw conflict('RouterInUse', `Router ${id} still has ports`)
  }
  await execute(trx, sql`UPDATE router SET routes = '[]' WHERE id = ${id}`)
  await clearGateway(trx, row)
  await execute(trx, sql`DELETE FROM router WHERE id = ${id}`)
}

/** Adds routes to a router, or removes them, without the others being named. @returns the router */
export const changeRoutes = (
  database: Database,
  target: Target,
  action: 'add_extraroutes' | 'remove_extraroutes',
  attributes: unknown,
): Promise<Item> =>
  changeAt(database, routerSource, target, async trx => {
    const { caller, id } = target
    const row = await lockOwned(trx, routerSource, caller, id, action)
    const given = parseAttributes(routesSchema, attributes).routes
    const change = action === 'add_extraroutes' ? addRoutes : removeRoutes
    await storeRoutes(trx, id, change(row.routes, given))
    await execute(trx, sql`UPDATE router SET ${assignments(CHANGED)} WHERE id = ${id}`)
    return shown(trx, { source: routerSource, present: presentRouter }, caller, id)
  })
