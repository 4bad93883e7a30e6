import type { Dialect } from '../../api/dialect.js'
import { routesFor } from '../../api/route.js'
import { createAuthenticator, placeOfCaller } from '../../identity/authenticate.js'
import type { Caller, TokenValidator } from '../../identity/caller.js'
import type { Limits } from '../quota.js'
import { parseAttributes } from './body.js'
import type { ChangeableKind } from './kinds.js'
import { presentFault } from './neutron-error.js'
import type { Quotas } from './quotas.js'
import type { ChangeableResource, Resource } from './resource.js'
import type { RouterActions } from './routers/actions.js'

/** What the route handlers use. */
export type Service = {
  resources: Readonly<Record<ChangeableKind, ChangeableResource> & { security_group_rule: Resource }>
  routerActions: RouterActions
  quotas: Quotas
  /** Limits of projects without limits of their own. */
  defaultLimits: Limits
}

/** Who may use a route. The resource checks the right once it has the object. */
export type Right = keyof typeof RIGHTS

export const RIGHTS = {
  read: 'Any user, for objects of the own project and shared objects; the role admin, for all objects.',
  write: 'The role member, for objects of the own project; the role admin, for all objects.',
  'read quota': 'Any user, for the own project; the role admin, for all projects.',
  administer: 'The role admin.',
  'see the service': 'Any user with a token.',
} as const

export const { route, openRoute } = routesFor<Service, Caller, Right>()

export type DialectOptions = {
  validate: TokenValidator
  /** The public identity URL, for the WWW-Authenticate header. */
  identityUrl: string
  /** Base URL of links; defaults to the URL of the request. */
  publicUrl?: string | undefined
  trustedProxies?: readonly string[]
}

/** Neutron's dialect: its errors and wording. An unknown path answers 404 only to callers with a token. */
export function networkDialect(options: DialectOptions): Dialect<Service, Caller, Right> {
  const { validate, identityUrl, publicUrl, trustedProxies = [] } = options
  return {
    name: 'network',
    trustedProxies,
    publicUrl,
    caseSensitive: false,
    headIsGet: true,
    body: { maxBytes: 1024 * 1024 },
    authenticate: createAuthenticator({ validate, trustedProxies, identityUrl, serviceType: 'network' }),
    hidesPath: () => true,
    placeOf: caller => caller && placeOfCaller(caller),
    validate: parseAttributes,
    presentFault,
  }
}
