import { type Fragment, sql } from '../database/sql.js'
import type { Caller } from '../identity/caller.js'

export const isAdmin = (caller: Caller): boolean => caller.roles.includes('admin')

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

/** Ports (aliases `port` and `network`) the caller may see: its own and those on its networks. */
export function visiblePorts(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  const project = projectIdOf(caller)
  return sql`(port.project_id = ${project} OR network.project_id = ${project})`
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** Whether a text can be the ID of a row. An object with any other ID does not exist. */
export const isUuid = (text: string): boolean => UUID.test(text)
