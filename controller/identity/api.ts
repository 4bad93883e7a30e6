import type Koa from 'koa'
import { createApi } from '../api/api.js'
import type { Database } from '../database/connection.js'
import { createTurns } from '../http/turns.js'
import type { Logger } from '../log/log.js'
import { identityDescription } from './description/description.js'
import { identityDialect, type Service } from './dialect.js'
import { createLogins } from './login/logins.js'
import type { IdentitySettings } from './options.js'
import { allRoutes } from './routes.js'
import { purgeExpiredTokens } from './tokens/store.js'
import { createTokenTurns } from './tokens/token-turns.js'

export type IdentityApiOptions = {
  database: Database
  config: { identity: IdentitySettings }
  log: Logger
  /** 32 bytes that encrypt the credentials under /v3/credentials. Without them that resource answers 501. */
  credentialKey?: Buffer
}

const PURGE_INTERVAL_MILLISECONDS = 60_000

/** The embedded identity service: Keystone's v3 API over Krater's own tables. */
export function createIdentityApi({ database, config, log, credentialKey }: IdentityApiOptions): Koa {
  const service: Service = {
    database,
    logins: createLogins(config.identity),
    turns: createTurns(),
    tokenTurns: createTokenTurns(),
    limits: config.identity,
    credentialKey: credentialKey ?? null,
    purgeTokens: tokenPurge(database, log),
  }
  return createApi({
    dialect: identityDialect(config.identity, service),
    routes: allRoutes,
    service,
    log,
    description: { make: identityDescription },
    turns: service.turns,
  })
}

/** @returns a function that starts a purge of expired tokens, at most once a minute, and does not wait for it */
function tokenPurge(database: Database, log: Logger): () => void {
  let last = 0
  return () => {
    if (Date.now() - last <= PURGE_INTERVAL_MILLISECONDS) return
    last = Date.now()
    purgeExpiredTokens(database).catch((error: Error) =>
      log.warn({ service: 'identity' }, `Expired tokens were not purged: ${error.message}`),
    )
  }
}
