import { applicationCredentialRoutes } from './application-credentials.js'
import { credentialRoutes } from './credentials.js'
import { domainRoutes } from './domains.js'
import { endpointRoutes } from './endpoints.js'
import { grantRoutes } from './grants.js'
import { groupRoutes } from './groups.js'
import { impliedRoleRoutes } from './implied-roles.js'
import { ownScopeRoutes } from './own-scopes.js'
import { projectRoutes } from './projects.js'
import { regionRoutes } from './regions.js'
import type { Route } from './request.js'
import { roleAssignmentRoutes } from './role-assignments.js'
import { roleRoutes } from './roles.js'
import { serviceRoutes } from './services.js'
import { tokenRoutes } from './tokens/routes.js'
import { userRoutes } from './users.js'

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
