import type { Dialect } from '../../api/dialect.js'
import { routesFor } from '../../api/route.js'
import { createAuthenticator, placeOfCaller } from '../../identity/authenticate.js'
import type { Caller, TokenValidator } from '../../identity/caller.js'
import type { Limits } from '../quota.js'
import { parseAttributes } from './body.js'
import { presentFault, type Singular } from './neutron-error.js'
import type { Quotas } from './quotas.js'
import type { Resource } from './resource.js'

/** What the handlers of this API work with. */
export type Service = {
  resources: Readonly<Record<Singular, Resource>>
  quotas: Quotas
  /** Limits of projects for which none were set. */
  defaultLimits: Limits
}

/** Who may use a route. What it means for the object at hand, the resource checks where it has the object. */
export type Right = keyof typeof RIGHTS

export const RIGHTS = {
  read: 'Everybody, for objects of the own project and for shared ones; admin for all.',
  write: 'The role member, for objects of the own project; admin for all.',
  'read quota': 'Everybody, for the own project; admin for all.',
  administer: 'The role admin.',
  'see the service': 'Everybody who has a token.',
} as const

export const { route, openRoute } = routesFor<Service, Caller, Right>()

export type DialectOptions = {
  validate: TokenValidator
  /** The public identity URL, for the WWW-Authenticate header. */
  identityUrl: string
  /** What links begin with; the URL at which a request came in when it is not given. */
  publicUrl?: string | undefined
  trustedProxies?: readonly string[]
}

/** The Networking API among ours: Neutron's errors and words, and paths that are said to be missing only to who has a token. */
export function networkDialect(options: DialectOptions): Dialect<Service, Caller, Right> {
  const { validate, identityUrl, publicUrl, trustedProxies = [] } = options
  return {
    name: 'network',
    trustedProxies,
    publicUrl,
    caseSensitive: false,
    headIsGet: true,
    body: { mostBytes: 1024 * 1024 },
    authenticate: createAuthenticator({ validate, trustedProxies, identityUrl, serviceType: 'network' }),
    hidesPath: () => true,
    placeOf: caller => caller && placeOfCaller(caller),
    validate: parseAttributes,
    presentFault,
  }
}
