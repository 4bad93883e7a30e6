import type { Knex } from 'knex'
import { many } from '../../../database/query.js'
import { sql } from '../../../database/sql.js'
import { PORT_OWNER, ROUTER_PORT_OWNER } from '../../driver.js'
import type { Filter, Filters, PortShare, Rule, SecurityGroup } from './filters.js'

/** Every filter of every port. */
export async function readFilters(database: Knex): Promise<Filters> {
  const rows = await readRows(database)
  if (rows.length === 0) return { filters: [], groups: [], shares: [] }
  const filters = rows.map(({ addresses: _, ...filter }) => filter)
  const networkIds = [...new Set(filters.map(({ networkId }) => networkId))]
  const [groups, shares] = await Promise.all([
    readGroups(database, [...new Set(filters.flatMap(({ groupIds }) => groupIds))]),
    readShares(database, networkIds),
  ])
  const holders = rows.filter(({ vips }) => vips !== null)
  // A group may have been deleted since the first statement.
  const existing = new Set(groups.map(({ id }) => id))
  return {
    filters: filters.map(filter => ({ ...filter, groupIds: filter.groupIds.filter(id => existing.has(id)) })),
    groups: groups.map(group => ({ ...group, members: membersOf(group, holders) })),
    shares,
  }
}

/** The filters of one port, with all that they need; null if it has none. */
export async function readFiltersOf(database: Knex, portId: string): Promise<Filters | null> {
  const all = await readFilters(database)
  const filters = all.filters.filter(filter => filter.portId === portId)
  if (filters.length === 0) return null
  const own = new Set(filters.flatMap(({ groupIds }) => groupIds))
  const named = all.groups
    .filter(({ id }) => own.has(id))
    .flatMap(({ rules }) =>
      rules.flatMap(({ remote }) => (remote !== null && 'groupId' in remote ? [remote.groupId] : [])),
    )
  const needed = new Set([...own, ...named])
  return {
    filters,
    groups: all.groups.filter(({ id }) => needed.has(id)),
    shares: all.shares.filter(share => share.portId === portId),
  }
}

type FilterRow = Filter & { addresses: string[] }

/**
 * An amphora's port is filtered for the VIPs that it may hold: by groups of its own, or by those of the VIP's port. A
 * user's port is not filtered by the groups that it had for a machine, only by those of the load balancer.
 */
function readRows(database: Knex): Promise<FilterRow[]> {
  return many(
    database,
    sql<FilterRow>`
      SELECT port.id AS "portId", port.network_id AS "networkId", held.vips, held.group_ids AS "groupIds",
             NOT EXISTS (SELECT FROM security_group
                          WHERE security_group.id = ANY(held.group_ids::uuid[]) AND NOT stateful) AS stateful,
             ARRAY(SELECT host(fixed_ip.address) FROM fixed_ip WHERE fixed_ip.port_id = port.id) AS addresses
        FROM port
        CROSS JOIN LATERAL (
          SELECT NULL::text[] AS vips,
                 ARRAY(SELECT security_group_id::text FROM port_security_group
                        WHERE port_id = port.id ORDER BY 1) AS group_ids
           WHERE port.filtered
          UNION ALL
          SELECT ARRAY[vip.address], vip.group_ids FROM (
            SELECT allowed.address,
                   ARRAY(SELECT DISTINCT security_group_id::text FROM port_security_group
                          WHERE port_id = port.id OR port_id IN (
                                SELECT fixed_ip.port_id FROM fixed_ip
                                  JOIN subnet ON subnet.id = fixed_ip.subnet_id
                                  JOIN port holder ON holder.id = fixed_ip.port_id
                                 WHERE subnet.network_id = port.network_id AND fixed_ip.address = allowed.address::inet
                                   AND holder.filtered)
                          ORDER BY 1) AS group_ids
              FROM unnest(port.allowed_addresses) AS allowed (address)
             WHERE port.device_owner = ${PORT_OWNER.amphora} AND NOT port.filtered) vip
           WHERE vip.group_ids <> '{}') held
       ORDER BY port.id, held.vips`,
  )
}

type GroupRow = { id: string; rules: Rule[]; members: string[] }

/** These groups, and those that their rules name as the other side. */
async function readGroups(database: Knex, ids: readonly string[]): Promise<SecurityGroup[]> {
  return many(
    database,
    sql<GroupRow>`
      SELECT security_group.id,
             coalesce((
               SELECT json_agg(json_build_object(
                        'direction', direction, 'version', CASE ethertype WHEN 'IPv4' THEN 4 ELSE 6 END,
                        'protocol', protocol_number, 'min', port_range_min, 'max', port_range_max,
                        'remote', CASE WHEN remote_ip_prefix IS NOT NULL THEN json_build_object('cidr', remote_ip_prefix::text)
                                       WHEN remote_group_id IS NOT NULL THEN json_build_object('groupId', remote_group_id)
                                  END) ORDER BY rule.id)
                 FROM security_group_rule rule WHERE rule.security_group_id = security_group.id), '[]') AS rules,
             ARRAY(
               SELECT host(fixed_ip.address) FROM port_security_group
                 JOIN fixed_ip ON fixed_ip.port_id = port_security_group.port_id
                WHERE port_security_group.security_group_id = security_group.id
               UNION
               SELECT pair.value ->> 'ip_address' FROM port_security_group
                 JOIN port ON port.id = port_security_group.port_id
                CROSS JOIN LATERAL jsonb_array_elements(port.allowed_address_pairs) AS pair
                WHERE port_security_group.security_group_id = security_group.id
               ORDER BY 1) AS members
        FROM security_group
       WHERE security_group.id = ANY(${ids}::uuid[])
          OR security_group.id IN (SELECT remote_group_id FROM security_group_rule
                                    WHERE security_group_id = ANY(${ids}::uuid[]))
       ORDER BY security_group.id`,
  )
}

/** An amphora that holds a VIP speaks to members from its own addresses. */
const membersOf = ({ id, members }: SecurityGroup, holders: readonly FilterRow[]): string[] => [
  ...new Set([
    ...members,
    ...holders.filter(({ groupIds }) => groupIds.includes(id)).flatMap(({ addresses }) => addresses),
  ]),
]

/** The ports of networks that can have an interface. */
function readShares(database: Knex, networkIds: readonly string[]): Promise<PortShare[]> {
  const withoutInterface = [PORT_OWNER.vip, ROUTER_PORT_OWNER.floatingIp]
  const legs = [ROUTER_PORT_OWNER.interface, ROUTER_PORT_OWNER.gateway]
  return many(
    database,
    sql<PortShare>`
      SELECT id AS "portId", project_id AS "projectId", device_owner = ANY(${legs}::text[]) AS "isRouterLeg"
        FROM port WHERE network_id = ANY(${networkIds}::uuid[]) AND device_owner <> ALL(${withoutInterface}::text[])
       ORDER BY id`,
  )
}
