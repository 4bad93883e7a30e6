import type { Route } from './request.js'
import { applicationCredentialRoutes } from './resources/application-credentials.js'
import { credentialRoutes } from './resources/credentials.js'
import { domainRoutes } from './resources/domains.js'
import { endpointRoutes } from './resources/endpoints.js'
import { groupRoutes } from './resources/groups.js'
import { ownScopeRoutes } from './resources/own-scopes.js'
import { projectRoutes } from './resources/projects.js'
import { regionRoutes } from './resources/regions.js'
import { grantRoutes } from './resources/roles/grants.js'
import { impliedRoleRoutes } from './resources/roles/implied-roles.js'
import { roleAssignmentRoutes } from './resources/roles/role-assignments.js'
import { roleRoutes } from './resources/roles/roles.js'
import { serviceRoutes } from './resources/services.js'
import { userRoutes } from './resources/users.js'
import { tokenRoutes } from './tokens/routes.js'

/** Every operation that needs a token. */
export function allRoutes({ credentialKey }: { credentialKey: Buffer | null }): Route[] {
  return [
    ...tokenRoutes,
    ...ownScopeRoutes,
    ...userRoutes,
    ...projectRoutes,
    ...domainRoutes,
    ...roleRoutes,
    ...impliedRoleRoutes,
    ...grantRoutes,
    ...roleAssignmentRoutes,
    ...groupRoutes,
    ...serviceRoutes,
    ...endpointRoutes,
    ...regionRoutes,
    ...credentialRoutes(credentialKey),
    ...applicationCredentialRoutes,
  ]
}
