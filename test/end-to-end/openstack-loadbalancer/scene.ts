import type { OpenstackSession } from '../../support/clients/openstack-session.js'
import type { Krater } from '../../support/worlds/krater.js'

/**
 * A Krater without machines and the clients of two users. Load balancers use `noop_driver` unless a case says
 * otherwise.
 */
export type Scene = {
  krater: Krater
  /** For the project demo. */
  member: OpenstackSession
  /** For the project admin. */
  admin: OpenstackSession
}

export const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/

/** The names of listed objects, sorted. */
export const namesOf = (listed: readonly Record<string, unknown>[]): unknown[] => listed.map(({ name }) => name).sort()
