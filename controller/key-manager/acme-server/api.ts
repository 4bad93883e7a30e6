import type Koa from 'koa'
import { createApi } from '../../api/api.js'
import type { Turns } from '../../http/turns.js'
import type { Logger } from '../../log/log.js'
import { type AcmeService, acmeDialect } from './dialect.js'
import { accountRoutes } from './routes/accounts.js'
import { authorizationRoutes } from './routes/authorizations.js'
import { certificateRoutes } from './routes/certificates.js'
import { directoryRoutes } from './routes/directory.js'
import { orderRoutes } from './routes/orders.js'
import { createNonces } from './signatures/nonces.js'

export type AcmeServerOptions = Omit<AcmeService, 'nonces'> & {
  log: Logger
  /** Those of the API that the server is part of. */
  turns: Turns
}

/**
 * The ACME server (RFC 8555, RFC 8738, RFC 9773) before the internal CA. Certificates are ordered from the key manager
 * like any other, and validators carry out the challenges.
 */
export function createAcmeServer({ log, turns, ...parts }: AcmeServerOptions): Koa {
  const service = { ...parts, nonces: createNonces(parts) }
  return createApi({
    dialect: acmeDialect({ ...service, turns }),
    routes: [...directoryRoutes, ...accountRoutes, ...orderRoutes, ...authorizationRoutes, ...certificateRoutes],
    service,
    log,
    turns,
  })
}
