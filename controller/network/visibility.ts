import { type Fragment, sql } from '../database/sql.js'
import type { Caller } from '../identity/caller.js'

export const isAdmin = (caller: Caller): boolean => caller.roles.includes('admin')

const EVERYTHING = sql`true`

/** A caller without a project owns nothing; no project has an empty id. */
const projectOf = (caller: Caller) => caller.project?.id ?? ''

/** Networks on which the caller may place ports (alias `network`): its own and the shared ones. */
export function usableNetworks(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  return sql`(network.project_id = ${projectOf(caller)} OR network.shared)`
}

/** Networks that the caller may look at (alias `network`): external ones as well, like Neutron. */
export function visibleNetworks(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  return sql`(network.project_id = ${projectOf(caller)} OR network.shared OR network.external)`
}

/** Subnets that the caller may see (aliases `subnet` and `network`). */
export function visibleSubnets(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  const project = projectOf(caller)
  return sql`(subnet.project_id = ${project} OR network.project_id = ${project} OR network.shared)`
}

/** Ports that the caller may see (aliases `port` and `network`): its own and those on its networks. */
export function visiblePorts(caller: Caller): Fragment {
  if (isAdmin(caller)) return EVERYTHING
  const project = projectOf(caller)
  return sql`(port.project_id = ${project} OR network.project_id = ${project})`
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** Whether a text can be the id of a row at all; anything else simply does not exist. */
export const isUuid = (text: string): boolean => UUID.test(text)
