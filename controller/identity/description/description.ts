import { type DescriptionTexts, openApiDocument } from '../../api/description/document.js'
import type { Route } from '../../api/route.js'
import { type OpenApi, objectOf, type Schema } from '../../api/schema.js'
import type { Service } from '../dialect.js'
import {
  administrators,
  administratorsAndUser,
  anyone,
  type Rule,
  readers,
  readersAndDomain,
  readersAndProject,
  readersAndUser,
  userAlone,
} from '../policy.js'
import type { StoredToken } from '../tokens/store.js'
import { EXAMPLES } from './examples.js'

type AnyRoute = Route<Service, StoredToken, Rule>

/** The API as an OpenAPI document. Pure. */
export const identityDescription = (routes: readonly AnyRoute[]): OpenApi => openApiDocument(routes, TEXTS)

const RULES: ReadonlyMap<Rule, readonly [name: string, sentence: string]> = new Map([
  [anyone, ['anyone', 'Any user with a token.']],
  [administrators, ['administrators', 'The role admin.']],
  [readers, ['readers', 'The role admin, or the role reader on the system.']],
  [readersAndUser, ['readers and the user', 'The user itself, the role admin, or the role reader on the system.']],
  [
    readersAndProject,
    ['readers and the project', 'A token scoped to the project, the role admin, or the role reader on the system.'],
  ],
  [
    readersAndDomain,
    [
      'readers and the domain',
      'Users of the domain, a token scoped to it or one of its projects, the role admin, or the role reader on the system.',
    ],
  ],
  [userAlone, ['the user', 'Only the user itself.']],
  [administratorsAndUser, ['administrators and the user', 'The user itself, or the role admin.']],
])

const text: Schema = { type: 'string' }

const TEXTS: DescriptionTexts<AnyRoute> = {
  title: 'Identity',
  version: '3.14',
  summary: 'The Identity API v3.',
  description: 'Log in with POST /v3/auth/tokens; all other operations require the token. Lists are not paginated.',
  groups: {
    auth: 'Tokens, and the scopes available to their users.',
    users: 'Accounts that can log in.',
    projects: 'Projects own the objects of all services.',
    domains: 'Domains contain users, groups and projects.',
    roles: 'Roles determine what users may do. A role may imply others.',
    role_assignments: 'Roles of users and groups on projects, domains and the system.',
    groups: 'Groups of users that receive roles together.',
    services: 'The services in the catalog.',
    endpoints: 'The URLs of the services in the catalog.',
    regions: 'Parts of a deployment.',
    limits: 'Unified limits: there are none. Each service has quotas of its own.',
    credentials: 'Secrets that users store in this service.',
    application_credentials: 'Secrets with which programs act for a user in one project.',
  },
  schemas: {
    fault: objectOf({ error: objectOf({ code: { type: 'integer' }, message: text, title: text }) }),
  },
  errors: {
    400: ['The request is malformed or breaks a rule.', 'fault'],
    401: ['The token is missing or invalid, or the login failed.', 'fault'],
    403: ['The caller may not make this request.', 'fault'],
    404: ['The object does not exist.', 'fault'],
    409: ['Another object has the same name, or other objects refer to this one.', 'fault'],
    413: ['The request body is too large.', 'fault'],
    429: ['Too many requests or failed logins. Try again later.', 'fault'],
    500: ['An unexpected error. Report the request ID to the operator.', 'fault'],
    501: ['This deployment does not support the operation.', 'fault'],
    503: ['The service is temporarily unavailable. Try again.', 'fault'],
  },
  errorsOf: route => {
    if (route.group === 'service') return [400, 500]
    const common = [
      400,
      401,
      403,
      404,
      429,
      500,
      503,
      ...(route.group === 'credentials' || route.group === 'limits' ? [501] : []),
    ]
    return route.method === 'GET' || route.method === 'HEAD' ? common : [...common, 409, 413]
  },
  examples: EXAMPLES,
  rightOf: route => {
    const [name, sentence] = ('right' in route ? RULES.get(route.right) : undefined) ?? ['', '']
    return { name, sentence }
  },
  pathParameter: name => ({ description: `ID of the ${objectName(name)}.`, schema: text }),
}

const objectName = (name: string): string => (name === 'id' ? 'object' : name.replace(/_id$/, '').replaceAll('_', ' '))
