import type { Knex } from 'knex'
import type { Caller } from '../../../identity/caller.js'
import { PORT_OWNER } from '../../driver.js'
import { replaceGroups } from '../../local/ports.js'
import { conflict, NeutronError, notAuthorized, notFound } from '../neutron-error.js'
import { owns } from '../resource.js'
import { groupsOf } from '../security-groups/rules.js'

/** What a request says about a port's security. */
type Requested = {
  security_groups?: readonly string[] | undefined
  port_security_enabled?: boolean | undefined
  allowed_address_pairs?: readonly unknown[] | undefined
}

/** What a port has; of a new one, only its owner and its network's default are known. */
type Present = {
  device_owner: string
  port_security_enabled: boolean
  security_groups?: readonly string[]
  allowed_address_pairs?: readonly unknown[]
  filtered?: boolean
}

/**
 * Whoever owns the network decides which of its ports may send as others. A request that changes nothing is anybody's.
 * @param current the port's value, or for a new port its network's
 * @throws NeutronError 403
 */
export function requireSecurityRights(
  caller: Caller,
  network: { project_id: string },
  { port_security_enabled = undefined, allowed_address_pairs = [] }: Requested,
  current: boolean,
  verb: 'create' | 'update',
): void {
  if (owns(caller, network)) return
  if (port_security_enabled !== undefined && port_security_enabled !== current) {
    throw notAuthorized(`${verb}_port:port_security_enabled`)
  }
  if (allowed_address_pairs.length > 0) throw notAuthorized(`${verb}_port:allowed_address_pairs`)
}

/**
 * Whether a port gets port security, and whether its groups filter it. What `krater network attach` makes is open until
 * somebody names its groups. Pure.
 * @throws NeutronError 400, 409
 */
export function chooseSecurity(
  requested: Requested,
  present: Present,
): { port_security_enabled: boolean; filtered: boolean } {
  const enabled = requested.port_security_enabled ?? present.port_security_enabled
  const groups = requested.security_groups ?? present.security_groups ?? []
  const pairs = requested.allowed_address_pairs ?? present.allowed_address_pairs ?? []
  if (!enabled && groups.length > 0) {
    if (requested.security_groups === undefined) {
      throw conflict(
        'PortSecurityPortHasSecurityGroup',
        'Port has security group associated. Cannot disable port security or IP address until security group is removed.',
      )
    }
    throw new NeutronError(
      400,
      'PortSecurityAndIPRequiredForSecurityGroups',
      'Port security must be enabled and port must have an IP address in order to use security groups.',
    )
  }
  if (!enabled && pairs.length > 0) {
    throw conflict(
      'AddressPairAndPortSecurityRequired',
      'Port Security must be enabled in order to have allowed address pairs on a port.',
    )
  }
  const changes = requested.security_groups !== undefined || enabled !== present.port_security_enabled
  const { filtered = present.device_owner !== PORT_OWNER.attachment } = present
  return { port_security_enabled: enabled, filtered: enabled && (filtered || changes) }
}

/** Replaces the groups of a port. @throws NeutronError 404 for a group that the caller may not see */
export async function setGroups(trx: Knex, caller: Caller, portId: string, ids: readonly string[]): Promise<void> {
  const found = await groupsOf(trx, caller, ids)
  const missing = ids.find(id => !found.some(group => group.id === id))
  if (missing !== undefined) throw notFound('security_group', missing)
  await replaceGroups(trx, portId, ids)
}
