import type Koa from 'koa'
import { createApi } from '../api/api.js'
import { mount } from '../api/mount.js'
import { createTurns } from '../http/turns.js'
import { type Checks, createChecks, INSPECTION_MILLISECONDS } from '../inspection/checks.js'
import type { Logger } from '../log/log.js'
import { createAcmeServer } from './acme-server/api.js'
import { ACME_PREFIX } from './acme-server/dialect.js'
import { aclRoutes } from './api/acls.js'
import { acmeAccountRoutes } from './api/acme/accounts.js'
import { bindingRoutes } from './api/certificates/bindings.js'
import { certificateAuthorityRoutes } from './api/certificates/certificate-authorities.js'
import { certificateRoutes } from './api/certificates/certificates.js'
import { publicRevocationList } from './api/certificates/public-crl.js'
import { containerRoutes } from './api/containers.js'
import { keyManagerDescription } from './api/description.js'
import { type DialectOptions, keyManagerDialect } from './api/dialect.js'
import { orderRoutes } from './api/orders.js'
import { quotaRoutes } from './api/quotas.js'
import { secretStoreRoutes } from './api/secret-stores.js'
import { secretRoutes } from './api/secrets/secrets.js'
import { transportKeyRoutes } from './api/transport-keys.js'
import { versionRoutes } from './api/versions.js'
import { createRefusalLog, type RefusalLog } from './audit/refusals.js'
import { createCaBackends } from './certificate-authorities/backends.js'

export type KeyManagerApiOptions = Omit<DialectOptions, 'recordRefusal'> & {
  log: Logger
  /** Must be flushed when the API stops. */
  refusals?: RefusalLog
  checks?: Checks
}

/** The routes within a project, with or without those of secret stores. */
export const projectRoutes = (withStores: boolean) => [
  ...[...secretRoutes, ...containerRoutes, ...aclRoutes, ...orderRoutes, ...quotaRoutes, ...transportKeyRoutes],
  ...[...certificateRoutes, ...certificateAuthorityRoutes, ...bindingRoutes, ...acmeAccountRoutes],
  ...(withStores ? secretStoreRoutes : []),
]

/** The key manager API v1. The worker generates keys and issues certificates; this does everything else. */
export function createKeyManagerApi(options: KeyManagerApiOptions): Koa {
  const { log, config, database, keyring, refusals = createRefusalLog(database, log) } = options
  const { checks = createChecks({ inspectionMilliseconds: INSPECTION_MILLISECONDS }) } = options
  const parts = { database, keyring, config }
  const service = { ...parts, checks, caBackends: createCaBackends(parts) }
  const turns = createTurns()
  const app = createApi({
    dialect: keyManagerDialect({ ...options, recordRefusal: refusals.record }),
    routes: [...versionRoutes, publicRevocationList, ...projectRoutes(config.crypto.enable_multiple_secret_stores)],
    service,
    log,
    turns,
    description: { make: keyManagerDescription },
  })
  if (config.acme_server.enable) mount(app, ACME_PREFIX, createAcmeServer({ ...service, log, turns }))
  return app
}
