import { openDatabase, openInstance } from '../../controller/cli/instance.js'
import { offeredProviders } from '../../controller/cli/processes/offered-providers.js'
import { startServer } from '../../controller/http/server.js'
import { createLoadBalancerApi } from '../../controller/load-balancer/api.js'
import { createLog } from '../../controller/log/log.js'
import { createNoopNetworkDriver } from '../../controller/network/noop/driver.js'
import type { BenchInstance } from './instance.js'

export type StatementCounter = {
  /** Statements that the load balancer API sends to PostgreSQL for one request, BEGIN and COMMIT included, authentication not. */
  countOf: (method: string, path: string, body?: unknown) => Promise<number>
  stop: () => Promise<void>
}

/** An API of this process over the instance's database, whose connection tells of every statement. */
export async function countStatements({ directory, api }: BenchInstance): Promise<StatementCounter> {
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'load_balancer', 'bench')
  const domain = { id: 'default', name: 'Default' }
  const app = createLoadBalancerApi({
    database,
    network: createNoopNetworkDriver(),
    validate: async () => ({
      user: { id: 'bench', name: 'bench', domain },
      project: { id: api.projectId, name: 'bench', domain },
      domain: null,
      system: false,
      roles: ['admin'],
      expiresAt: new Date(Date.now() + 3_600_000),
    }),
    identityUrl: 'http://127.0.0.1/v3',
    providers: offeredProviders,
    config: instance.config.load_balancer,
    log: createLog('bench', 'silent'),
  })
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
