import { type Fragment, identifier, sql } from '../database/sql.js'
import type { Caller } from '../identity/caller.js'
import { ROUTER_PORT_OWNER } from './driver.js'

export const isAdmin = (caller: Pick<Caller, 'roles'>): boolean => caller.roles.includes('admin')

const EVERYTHING = sql`true`

/** Empty for a caller without a project, and so the ID of no project. */
const projectIdOf = (caller: Caller) => caller.project?.id ?? ''

/** Networks (alias `network`) the caller may create ports on: its own and shared ones. */
export function usableNetworks(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  return sql`(network.project_id = ${projectIdOf(caller)} OR network.shared)`
}

/** Networks (alias `network`) the caller may see: also external ones, as in Neutron. */
export function visibleNetworks(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  return sql`(network.project_id = ${projectIdOf(caller)} OR network.shared OR network.external)`
}

/** Subnets (aliases `subnet` and `network`) the caller may see. */
export function visibleSubnets(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  const project = projectIdOf(caller)
  return sql`(subnet.project_id = ${project} OR network.project_id = ${project} OR network.shared)`
}

/** Objects of the caller's project. @param kind the alias of their table */
export const ownObjects =
  (kind: string) =>
  (caller: Caller): Fragment =>
    isAdmin(caller) ? EVERYTHING : sql`${identifier(kind, 'project_id')} = ${projectIdOf(caller)}`

/** Ports (alias `port`) that hold the addresses of gateways and floating IPs on external networks. */
export const OUTER_PORTS = sql`port.device_owner IN (${ROUTER_PORT_OWNER.gateway}, ${ROUTER_PORT_OWNER.floatingIp})`

/**
 * Ports (aliases `port` and `network`) the caller may see: its own and those on its networks. As in Neutron, its
 * routers' gateways and its floating IPs show their addresses, but not their ports.
 */
export function visiblePorts(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  const project = projectIdOf(caller)
  return sql`(network.project_id = ${project} OR port.project_id = ${project} AND NOT ${OUTER_PORTS})`
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** Whether a text can be the ID of a row. An object with any other ID does not exist. */
export const isUuid = (text: string): boolean => UUID.test(text)
