import { jsonAnswer } from '../api/answer.js'
import type { Route } from '../api/route.js'
import { ownScopeRoutes } from './auth/own-scopes.js'
import { tokenRoutes } from './auth/tokens.js'
import { openRoute, type Service } from './dialect.js'
import { versionDocument } from './discovery.js'
import type { Rule } from './policy.js'
import { applicationCredentialRoutes } from './resources/application-credentials.js'
import { endpointRoutes } from './resources/catalog/endpoints.js'
import { regionRoutes } from './resources/catalog/regions.js'
import { serviceRoutes } from './resources/catalog/services.js'
import { credentialRoutes } from './resources/credentials.js'
import { domainRoutes } from './resources/domains.js'
import { groupRoutes } from './resources/groups.js'
import { limitRoutes } from './resources/limits.js'
import { projectTagRoutes } from './resources/project-tags.js'
import { projectRoutes } from './resources/projects.js'
import { grantRoutes } from './resources/roles/grants.js'
import { impliedRoleRoutes } from './resources/roles/implied-roles.js'
import { roleAssignmentRoutes } from './resources/roles/role-assignments.js'
import { roleRoutes } from './resources/roles/roles.js'
import { userRoutes } from './resources/users.js'
import type { StoredToken } from './tokens/store.js'

/** Every operation of the API. */
export const allRoutes: readonly Route<Service, StoredToken, Rule>[] = [
  openRoute({
    ...{ method: 'GET', path: '/', group: 'service', status: 300 },
    summary: 'List the versions of the API',
    answer: { type: 'object' },
    handle: async (_service, { base }) => ({
      ...jsonAnswer(300, { versions: { values: [versionDocument(base)] } }),
      headers: { Location: `${base}/v3/` },
    }),
  }),
  openRoute({
    ...{ method: 'GET', path: '/v3', group: 'service', status: 200 },
    summary: 'Show the version of the API',
    answer: { type: 'object' },
    handle: async (_service, { base }) => jsonAnswer(200, { version: versionDocument(base) }),
  }),
  ...tokenRoutes,
  ...ownScopeRoutes,
  ...userRoutes,
  ...projectRoutes,
  ...projectTagRoutes,
  ...domainRoutes,
  ...roleRoutes,
  ...impliedRoleRoutes,
  ...grantRoutes,
  ...roleAssignmentRoutes,
  ...groupRoutes,
  ...serviceRoutes,
  ...endpointRoutes,
  ...regionRoutes,
  ...limitRoutes,
  ...credentialRoutes,
  ...applicationCredentialRoutes,
]
