import type Koa from 'koa'
import { openDatabase, openInstance } from '../../controller/cli/wiring/instance.js'
import { openKeyring } from '../../controller/cli/wiring/key-manager/keyring.js'
import { providerOffers } from '../../controller/cli/wiring/network/ovn.js'
import type { Database } from '../../controller/database/connection.js'
import { startServer } from '../../controller/http/server.js'
import { createKeyManagerApi } from '../../controller/key-manager/api.js'
import { createLoadBalancerApi } from '../../controller/load-balancer/api.js'
import { COUNTED_RESOURCES, type Limits } from '../../controller/load-balancer/objects/quotas/limits.js'
import { createLog } from '../../controller/log/log.js'
import { createNoopNetworkDriver } from '../../controller/network/noop/driver.js'
import { providerCapabilities } from '../../controller/provider/providers.js'
import { ANY_CERTIFICATE } from '../support/clients/load-balancer-api.js'
import type { BenchInstance } from './instance.js'

export const WITHOUT_QUOTAS = Object.fromEntries(COUNTED_RESOURCES.map(kind => [kind, -1])) as Limits

export type StatementCounter = {
  /**
   * Statements that the API sends to PostgreSQL for one request, including BEGIN and COMMIT, without
   * authentication.
   */
  countOf: (method: string, path: string, body?: unknown) => Promise<number>
  stop: () => Promise<void>
}

/** A load balancer API in this process on the instance's database, whose connection reports every statement. */
export async function countStatements({ directory, api }: BenchInstance): Promise<StatementCounter> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'load_balancer', 'bench')
  const app = createLoadBalancerApi({
    ...access(api.projectId),
    database,
    network: createNoopNetworkDriver(),
    certificates: ANY_CERTIFICATE,
    providers: providerCapabilities(providerOffers(instance)),
    config: { ...instance.config.load_balancer, quota: WITHOUT_QUOTAS },
  })
  return counterOf(app, database)
}

/** The same for the key manager. */
export async function countKeyManagerStatements({ directory, api }: BenchInstance): Promise<StatementCounter> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'key_manager', 'bench')
  const keyring = await openKeyring(instance, database)
  const app = createKeyManagerApi({
    ...access(api.projectId),
    database,
    keyring,
    config: instance.config.key_manager,
  })
  return counterOf(app, database)
}

function access(projectId: string) {
  const domain = { id: 'default', name: 'Default' }
  return {
    validate: async () => ({
      user: { id: 'bench', name: 'bench', domain },
      project: { id: projectId, name: 'bench', domain },
      domain: null,
      system: false,
      roles: ['admin'],
      expiresAt: new Date(Date.now() + 3_600_000),
    }),
    identityUrl: 'http://127.0.0.1/v3',
    log: createLog('bench', 'silent'),
  }
}

async function counterOf(app: Koa, database: Database): Promise<StatementCounter> {
  const server = await startServer(app, { host: '127.0.0.1', port: 0 })
  return {
    countOf: async (method, path, body) => {
      let statements = 0
      const note = () => {
        statements += 1
      }
      database.on('query', note)
      const answer = await fetch(server.url + path, {
        method,
        headers: { 'X-Auth-Token': 'bench', ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(20_000),
      })
      const text = await answer.text()
      database.removeListener('query', note)
      if (!answer.ok) throw new Error(`${method} ${path} was answered ${answer.status}: ${text}`)
      return statements
    },
    stop: async () => {
      await server.stop()
      await database.destroy()
    },
  }
}
