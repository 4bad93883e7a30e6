import { setTimeout as delay } from 'node:timers/promises'
import type { ApiClient } from '../../../controller/cli/api-client.js'
import type { OpenstackSession, Shown } from '../../support/clients/openstack-session.js'
import type { Krater } from '../../support/worlds/krater.js'

/** A Krater and the clients of three users. */
export type Scene = {
  krater: Krater
  /** For the project demo. */
  member: OpenstackSession
  /** For the project admin. */
  admin: OpenstackSession
  /** A member of their own project. */
  stranger: OpenstackSession
  strangerId: string
  strangerProjectId: string
  /** The public APIs, called as the administrator. */
  administrator: ApiClient
  /** Writes a file for an argument of a command. @returns its path, without blanks */
  file: (name: string, content: string | Uint8Array) => string
}

export const UUID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
export const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00$/
/** An id without an object. */
export const MISSING = '00000000-0000-4000-8000-000000000000'
/** Expiry of the cases' objects, as the client shows it and as it is given. */
export const FAR = '2099-01-01T00:00:00+00:00'
export const FAR_GIVEN = '2099-01-01T02:00:00+02:00'

export const hrefOf = (kind: 'secrets' | 'orders' | 'containers' | 'cas') =>
  new RegExp(`^http://127\\.0\\.0\\.1:\\d+/v1/${kind}/${UUID}$`)

export const idOf = (href: unknown): string => String(href).split('/').at(-1) ?? ''

export const namesOf = (listed: readonly Shown[]): unknown[] => listed.map(({ Name }) => Name)

/** Runs a command that stores a secret or places an order. @returns the new reference */
export async function madeBy(session: OpenstackSession, line: string): Promise<string> {
  const shown = await session.show(line)
  return String(shown['Secret href'] !== 'N/A' && shown['Secret href'] ? shown['Secret href'] : shown['Order href'])
}

/** An order as the client shows it once it has ended. */
export async function finished(session: OpenstackSession, href: string): Promise<Shown> {
  for (let looks = 0; looks < 300; looks++) {
    const order = await session.show(`secret order get ${href}`)
    if (!['PENDING', 'PROCESSING'].includes(String(order.Status))) return order
    await delay(50)
  }
  throw new Error(`${href} never ends`)
}
