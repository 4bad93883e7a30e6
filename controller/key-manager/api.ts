import type Koa from 'koa'
import { createApi } from '../api/api.js'
import type { Logger } from '../log/log.js'
import { aclRoutes } from './acls/routes.js'
import { createRefusalLog, type RefusalLog } from './audit/refusals.js'
import { createCaBackends } from './certificate-authorities/backends.js'
import { publicRevocationList } from './certificate-authorities/public-crl.js'
import { certificateAuthorityRoutes } from './certificate-authorities/routes.js'
import { containerRoutes } from './containers/routes.js'
import { keyManagerDescription } from './description.js'
import { type DialectOptions, keyManagerDialect } from './dialect.js'
import { orderRoutes } from './orders/routes.js'
import { quotaRoutes } from './quotas/routes.js'
import { secretStoreRoutes } from './secret-stores/routes.js'
import { secretRoutes } from './secrets/routes.js'
import { transportKeyRoutes } from './transport-keys/routes.js'
import { versionRoutes } from './versions.js'

export type KeyManagerApiOptions = Omit<DialectOptions, 'recordRefusal'> & {
  log: Logger
  /** To be flushed when the API stops. */
  refusals?: RefusalLog
}

/** The routes within a project, with or without the choice among secret stores. */
export const projectRoutes = (withStores: boolean) => [
  ...[...secretRoutes, ...containerRoutes, ...aclRoutes, ...orderRoutes, ...quotaRoutes, ...transportKeyRoutes],
  ...certificateAuthorityRoutes,
  ...(withStores ? secretStoreRoutes : []),
]

/** The key manager API v1. Key generation and certificates are left to the worker; everything else happens here. */
export function createKeyManagerApi(options: KeyManagerApiOptions): Koa {
  const { log, config, database, keyring, refusals = createRefusalLog(database, log) } = options
  const parts = { database, keyring, config }
  return createApi({
    dialect: keyManagerDialect({ ...options, recordRefusal: refusals.record }),
    routes: [...versionRoutes, publicRevocationList, ...projectRoutes(config.crypto.enable_multiple_secret_stores)],
    service: { ...parts, caBackends: createCaBackends(parts) },
    log,
    description: { make: keyManagerDescription },
  })
}
