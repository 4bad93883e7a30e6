import { type DescriptionTexts, openApiDocument } from '../api/description/document.js'
import type { Route } from '../api/route.js'
import { type OpenApi, objectOf, type Schema } from '../api/schema.js'
import type { Service } from './dialect.js'
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
} from './policy.js'
import type { StoredToken } from './tokens/store.js'

type AnyRoute = Route<Service, StoredToken, Rule>

/** The API as an OpenAPI document. Pure. */
export const identityDescription = (routes: readonly AnyRoute[]): OpenApi => openApiDocument(routes, TEXTS)

const RULES: ReadonlyMap<Rule, readonly [name: string, sentence: string]> = new Map([
  [anyone, ['anyone', 'Everybody who has a token.']],
  [administrators, ['administrators', 'The role admin.']],
  [readers, ['readers', 'The role admin, or reader in the system.']],
  [readersAndUser, ['readers and the user', 'The user itself, and the role admin, or reader in the system.']],
  [
    readersAndProject,
    ['readers and the project', 'Who works in the project, and the role admin, or reader in the system.'],
  ],
  [
    readersAndDomain,
    ['readers and the domain', 'Who belongs to the domain, and the role admin, or reader in the system.'],
  ],
  [userAlone, ['the user', 'The user itself, and nobody else.']],
  [administratorsAndUser, ['administrators and the user', 'The user itself, and the role admin.']],
])

const text: Schema = { type: 'string' }

const TEXTS: DescriptionTexts<AnyRoute> = {
  title: 'Identity',
  version: '3.14',
  summary: 'The Identity API v3.',
  description: 'Log in with POST /v3/auth/tokens; every other operation takes the token. Lists come whole.',
  groups: {
    auth: 'Tokens, and what they could be scoped to.',
    users: 'Who may log in.',
    projects: 'What objects of all services belong to.',
    domains: 'What users, groups and projects belong to.',
    roles: 'What users may do, by name, and which roles bring others with them.',
    role_assignments: 'Which user or group has which role on what.',
    groups: 'Users that get roles together.',
    services: 'The services of the catalog.',
    endpoints: 'Where the services of the catalog are.',
    regions: 'Parts of a deployment.',
    credentials: 'Secrets that users keep here.',
    application_credentials: 'Secrets by which programs act for a user in one project.',
  },
  schemas: {
    fault: objectOf({ error: objectOf({ code: { type: 'integer' }, message: text, title: text }) }),
  },
  errors: {
    400: ['The request is malformed or breaks a rule.', 'fault'],
    401: ['There is no token, it is no longer good, or the login failed.', 'fault'],
    403: ['The rules do not allow this to the caller.', 'fault'],
    404: ['There is no such object.', 'fault'],
    409: ['Another object has its name, or something refers to it.', 'fault'],
    413: ['The body is too large.', 'fault'],
    429: ['There are too many requests or failed logins; try again later.', 'fault'],
    500: ['Something unexpected; the log tells more under the request’s id.', 'fault'],
    501: ['The service was started without what this needs.', 'fault'],
    503: ['The database cannot be reached; try again.', 'fault'],
  },
  errorsOf: route => {
    if (route.group === 'service') return [400, 500]
    const common = [400, 401, 403, 404, 429, 500, 503, ...(route.group === 'credentials' ? [501] : [])]
    return route.method === 'GET' || route.method === 'HEAD' ? common : [...common, 409, 413]
  },
  rightOf: route => {
    const [name, sentence] = ('right' in route ? RULES.get(route.right) : undefined) ?? ['', '']
    return { name, sentence }
  },
  pathParameter: name => ({ description: `Id of the ${wordOf(name)}.`, schema: text }),
}

const wordOf = (name: string): string => (name === 'id' ? 'object' : name.replace(/_id$/, '').replaceAll('_', ' '))
