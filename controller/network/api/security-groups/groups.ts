import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, maybeOne, one } from '../../../database/query.js'
import { assignments, insertion, sql } from '../../../database/sql.js'
import { sqlState } from '../../../database/transaction.js'
import type { Caller } from '../../../identity/caller.js'
import { lockQuota } from '../../quota.js'
import { isAdmin, ownObjects } from '../../visibility.js'
import { attribute, parseAttributes } from '../body.js'
import { conflict } from '../neutron-error.js'
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
import { ensureDefaultGroup } from './default-group.js'
import { presentRule, RULE_COLUMNS, type RuleRow } from './rules.js'

/** A rule as PostgreSQL writes it as JSON: with its times as texts. */
type RuleJson = Omit<RuleRow, 'created_at' | 'updated_at'> & { created_at: string; updated_at: string }

export type GroupRow = CommonRow & { stateful: boolean; is_default: boolean; rules: RuleJson[] }

export const groupSource: Source<GroupRow> & { kind: 'security_group' } = {
  kind: 'security_group',
  table: 'security_group',
  select: sql<GroupRow>`${commonColumns('security_group')}, security_group.stateful, security_group.is_default,
    coalesce((SELECT json_agg(rule ORDER BY rule.created_at, rule.id)
                FROM (SELECT ${RULE_COLUMNS} FROM security_group_rule
                       WHERE security_group_rule.security_group_id = security_group.id) rule), '[]') AS rules`,
  from: sql`security_group`,
  visible: ownObjects('security_group'),
  columns: {
    ...commonFilters('security_group'),
    stateful: { sql: sql`security_group.stateful`, kind: 'boolean' },
    shared: { constant: 'false' },
  },
  filters: tagFilters('security_group'),
}

export const presentGroup = (row: GroupRow): Item => ({
  ...presentCommon(row),
  stateful: row.stateful,
  shared: false,
  security_group_rules: row.rules.map(({ created_at, updated_at, ...rule }) =>
    presentRule({ ...rule, created_at: new Date(created_at), updated_at: new Date(updated_at) }),
  ),
})

export const updateSchema = z
  .strictObject({ name: attribute.text, description: attribute.text, stateful: attribute.boolean })
  .partial()

export const createSchema = updateSchema
  .extend({ project_id: attribute.projectId, tenant_id: attribute.projectId })
  .partial()

/** Security groups in Krater's own tables. A project's first request for them makes its group `default`. */
export function createGroups(database: Database, config: QuotaSettings): ChangeableResource {
  const resource = changeableResource(database, {
    source: groupSource,
    present: presentGroup,
    create: (trx, caller, body) => create(trx, caller, body, config),
    update,
    remove,
  })
  return {
    ...resource,
    list: async (caller, listing) => {
      if (caller.project !== null) await ensureDefaultGroup(database, caller.project.id)
      return resource.list(caller, listing)
    },
  }
}

async function create(trx: Knex, caller: Caller, attributes: unknown, { quota }: QuotaSettings): Promise<string> {
  requireWriter(caller, 'create_security_group')
  const body = parseAttributes(createSchema, attributes)
  const owner = ownerOf(caller, body, 'create_security_group')
  // As in the creation of a port, which may need the default group too, the quota's row is locked first.
  await lockQuota(trx, owner)
  await ensureDefaultGroup(trx, owner)
  if (body.name?.toLowerCase() === 'default') {
    throw conflict('SecurityGroupDefaultAlreadyExists', 'Default security group already exists.')
  }
  await chargeQuota(trx, owner, 'security_group', quota)
  const columns = {
    project_id: owner,
    name: body.name ?? '',
    description: body.description ?? '',
    stateful: body.stateful ?? true,
  }
  const { id } = await one(trx, sql<{ id: string }>`INSERT INTO security_group ${insertion([columns])} RETURNING id`)
  // As in Neutron: until its owner removes these rules, its ports may send everywhere.
  const egress = (['IPv4', 'IPv6'] as const).map(ethertype => ({
    project_id: owner,
    security_group_id: id,
    direction: 'egress',
    ethertype,
  }))
  await execute(trx, sql`INSERT INTO security_group_rule ${insertion(egress)}`)
  return id
}

async function update(trx: Knex, caller: Caller, id: string, attributes: unknown): Promise<void> {
  const row = await lockOwned(trx, groupSource, caller, id, 'update_security_group')
  const { name, description, stateful } = parseAttributes(updateSchema, attributes)
  if (row.is_default && name !== undefined && name !== row.name) {
    throw conflict('SecurityGroupCannotUpdateDefault', 'Updating default security group not allowed.')
  }
  if (!row.is_default && name?.toLowerCase() === 'default') {
    throw conflict('SecurityGroupDefaultAlreadyExists', 'Default security group already exists.')
  }
  if (stateful !== undefined && stateful !== row.stateful) {
    const used = await maybeOne(
      trx,
      sql`SELECT port_id FROM port_security_group WHERE security_group_id = ${id} LIMIT 1`,
    )
    if (used !== undefined) throw inUse(id)
  }
  const values = assignments({ name, description, stateful, ...CHANGED })
  await execute(trx, sql`UPDATE security_group SET ${values} WHERE id = ${id}`)
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const row = await lockOwned(trx, groupSource, caller, id, 'delete_security_group')
  if (row.is_default && !isAdmin(caller)) {
    throw conflict('SecurityGroupCannotRemoveDefault', 'Insufficient rights for removing default security group.')
  }
  try {
    await execute(trx, sql`DELETE FROM security_group WHERE id = ${id}`)
  } catch (error) {
    if (sqlState(error) !== FOREIGN_KEY_VIOLATION) throw error
    throw inUse(id)
  }
}

const inUse = (id: string) => conflict('SecurityGroupInUse', `Security Group ${id} in use.`)
