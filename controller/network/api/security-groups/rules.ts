import type { Knex } from 'knex'
import * as z from 'zod'
import type { Database } from '../../../database/connection.js'
import { execute, many, one } from '../../../database/query.js'
import { assignments, insertion, sql } from '../../../database/sql.js'
import type { Caller } from '../../../identity/caller.js'
import { isUuid, ownObjects } from '../../visibility.js'
import { attribute, parseAttributes, requireAttributes } from '../body.js'
import { conflict, NeutronError, notFound } from '../neutron-error.js'
import { chargeQuota, type QuotaSettings } from '../quotas.js'
import {
  CHANGED,
  type CommonRow,
  commonColumns,
  type Item,
  lockOwned,
  namelessFilters,
  ownerOf,
  presentNameless,
  type Resource,
  requireWriter,
  tableResource,
} from '../resource.js'
import type { Source } from '../select.js'
import { type EtherType, keyOf, normaliseRule, type Rule } from './rule-rules.js'

export type RuleRow = CommonRow & Omit<Rule, 'protocol_number'> & { security_group_id: string }

/** Columns of alias `security_group_rule`. */
export const RULE_COLUMNS = sql<RuleRow>`${commonColumns('security_group_rule', ['name', 'tags'])}, security_group_rule.security_group_id,
  security_group_rule.direction, security_group_rule.ethertype, security_group_rule.protocol,
  security_group_rule.port_range_min, security_group_rule.port_range_max,
  security_group_rule.remote_ip_prefix::text AS remote_ip_prefix, security_group_rule.remote_group_id`

export const ruleSource: Source<RuleRow> & { kind: 'security_group_rule' } = {
  kind: 'security_group_rule',
  table: 'security_group_rule',
  select: RULE_COLUMNS,
  from: sql`security_group_rule`,
  visible: ownObjects('security_group_rule'),
  columns: {
    ...namelessFilters('security_group_rule'),
    security_group_id: { sql: sql`security_group_rule.security_group_id`, kind: 'uuid' },
    direction: { sql: sql`security_group_rule.direction`, kind: 'text' },
    ethertype: { sql: sql`security_group_rule.ethertype`, kind: 'text' },
    protocol: { sql: sql`security_group_rule.protocol`, kind: 'text' },
    port_range_min: { sql: sql`security_group_rule.port_range_min`, kind: 'integer' },
    port_range_max: { sql: sql`security_group_rule.port_range_max`, kind: 'integer' },
    remote_ip_prefix: { sql: sql`security_group_rule.remote_ip_prefix`, kind: 'cidr' },
    remote_group_id: { sql: sql`security_group_rule.remote_group_id`, kind: 'uuid' },
    remote_address_group_id: { constant: null },
  },
  filters: {},
}

export const presentRule = (row: RuleRow): Item => ({
  ...presentNameless(row),
  security_group_id: row.security_group_id,
  direction: row.direction,
  ethertype: row.ethertype,
  protocol: row.protocol,
  port_range_min: row.port_range_min,
  port_range_max: row.port_range_max,
  remote_ip_prefix: row.remote_ip_prefix,
  normalized_cidr: row.remote_ip_prefix,
  remote_group_id: row.remote_group_id,
  remote_address_group_id: null,
})

const ETHERTYPES: Readonly<Record<string, EtherType>> = { ipv4: 'IPv4', ipv6: 'IPv6' }

const ethertype = z.string({ error: 'not a text' }).transform((text): EtherType => {
  const known = ETHERTYPES[text.toLowerCase()]
  if (known !== undefined && Object.hasOwn(ETHERTYPES, text.toLowerCase())) return known
  throw new NeutronError(
    400,
    'SecurityGroupRuleInvalidEtherType',
    `Security group rule for ethertype '${text}' not supported. Allowed values are ['IPv4', 'IPv6'].`,
  )
})

/** A port, or an ICMP type or code: which numbers are right depends on the protocol. */
const port = attribute.integer(-999_999, 999_999).nullable()

export const createSchema = z
  .strictObject({
    description: attribute.text,
    ethertype: ethertype.nullable(),
    protocol: z.preprocess(value => (typeof value === 'number' ? String(value) : value), attribute.text).nullable(),
    port_range_min: port,
    port_range_max: port,
    remote_ip_prefix: attribute.text.nullable(),
    // As in Neutron, what is no ID is the ID of no group.
    remote_group_id: attribute.text.transform(text => text.toLowerCase()).nullable(),
    remote_address_group_id: z.null({ error: 'this service has no address groups' }),
    project_id: attribute.projectId,
    tenant_id: attribute.projectId,
  })
  .partial()
  .extend({
    security_group_id: attribute.id,
    direction: z.enum(['ingress', 'egress'], {
      error: issue => `'${issue.input}' is not in ['ingress', 'egress']`,
    }),
  })

/** Rules of security groups in Krater's own tables. */
export const createRules = (database: Database, config: QuotaSettings): Resource =>
  tableResource(database, {
    source: ruleSource,
    present: presentRule,
    create: (trx, caller, body) => create(trx, caller, body, config),
    remove,
  })

async function create(trx: Knex, caller: Caller, attributes: unknown, { quota }: QuotaSettings): Promise<string> {
  requireWriter(caller, 'create_security_group_rule')
  requireAttributes(attributes, ['security_group_id', 'direction'])
  const body = parseAttributes(createSchema, attributes)
  const rule = normaliseRule({
    direction: body.direction,
    ethertype: body.ethertype ?? 'IPv4',
    protocol: body.protocol || null,
    port_range_min: body.port_range_min ?? null,
    port_range_max: body.port_range_max ?? null,
    remote_ip_prefix: body.remote_ip_prefix ?? null,
    remote_group_id: body.remote_group_id ?? null,
  })
  const projectId = await projectOfGroup(trx, caller, body.security_group_id)
  const { project_id = body.tenant_id ?? projectId, tenant_id = project_id } = body
  ownerOf(caller, { project_id, tenant_id }, 'create_security_group_rule')
  if (rule.remote_group_id !== null) await projectOfGroup(trx, caller, rule.remote_group_id)
  await chargeQuota(trx, projectId, 'security_group_rule', quota)
  // This locks the group: of two equal rules at the same time, the second sees the first.
  const grown = await execute(
    trx,
    sql`UPDATE security_group SET ${assignments(CHANGED)} WHERE id = ${body.security_group_id}`,
  )
  if (grown === 0) throw notFound('security_group', body.security_group_id)
  await refuseSame(trx, body.security_group_id, rule)
  const columns = {
    ...rule,
    project_id: projectId,
    security_group_id: body.security_group_id,
    description: body.description ?? '',
  }
  const { id } = await one(
    trx,
    sql<{ id: string }>`INSERT INTO security_group_rule ${insertion([columns])} RETURNING id`,
  )
  return id
}

/** @throws NeutronError 404 if the caller may not see the group */
async function projectOfGroup(trx: Knex, caller: Caller, id: string): Promise<string> {
  const [group] = await groupsOf(trx, caller, [id])
  if (group === undefined) throw notFound('security_group', id)
  return group.project_id
}

/** Those of the groups that the caller may use. Locks them against deletion. */
export const groupsOf = (
  trx: Knex,
  caller: Caller,
  ids: readonly string[],
): Promise<{ id: string; project_id: string }[]> =>
  many(
    trx,
    sql<{ id: string; project_id: string }>`
      SELECT id, project_id FROM security_group
       WHERE id = ANY(${ids.filter(isUuid)}::uuid[]) AND ${ownObjects('security_group')(caller)} FOR KEY SHARE`,
  )

async function refuseSame(trx: Knex, groupId: string, rule: Rule): Promise<void> {
  const others = await many(
    trx,
    sql<Rule & { id: string }>`
      SELECT id, direction, ethertype, protocol, protocol_number, port_range_min, port_range_max,
             remote_ip_prefix::text AS remote_ip_prefix, remote_group_id
        FROM security_group_rule
       WHERE security_group_id = ${groupId} AND direction = ${rule.direction} AND ethertype = ${rule.ethertype}`,
  )
  const same = others.find(other => keyOf(other) === keyOf(rule))
  if (same === undefined) return
  throw conflict('SecurityGroupRuleExists', `Security group rule already exists. Rule id is ${same.id}.`)
}

async function remove(trx: Knex, caller: Caller, id: string): Promise<void> {
  const { security_group_id } = await lockOwned(trx, ruleSource, caller, id, 'delete_security_group_rule')
  await execute(trx, sql`DELETE FROM security_group_rule WHERE id = ${id}`)
  await execute(trx, sql`UPDATE security_group SET ${assignments(CHANGED)} WHERE id = ${security_group_id}`)
}
