import type { CertificateSource } from '../../../controller/certificates/certificate-source.js'
import type { ComputeOffers } from '../../../controller/compute/offers.js'
import { configurationSchema } from '../../../controller/config/schema.js'
import type { Database } from '../../../controller/database/connection.js'
import { startServer } from '../../../controller/http/server.js'
import type { TokenValidator } from '../../../controller/identity/caller.js'
import { createLoadBalancerApi } from '../../../controller/load-balancer/api.js'
import { createLog } from '../../../controller/log/log.js'
import type { NetworkDriver } from '../../../controller/network/driver.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'
import { amphoraCapabilities } from '../../../controller/provider/amphora/capabilities.js'
import { noopCapabilities } from '../../../controller/provider/noop/capabilities.js'
import { ovnCapabilities } from '../../../controller/provider/ovn/capabilities.js'
import { createTestDatabase } from '../database/database.js'
import { failNewest, settleNewest } from '../database/worker-outcomes.js'
import { offersOf } from '../inputs/placement.js'
import { callerOf, tokenOf } from './callers.js'
import type { Reply } from './json-answers.js'

/** A subnet id; the noop network driver knows every id. */
export const SUBNET = '11111111-1111-4111-8111-111111111111'

/** Accepts every reference: for tests of something else. */
export const ANY_CERTIFICATE: CertificateSource = { check: async () => [], close: () => undefined }

export type Ask = (
  method: string,
  path: string,
  body?: unknown,
  token?: string | null,
  headers?: Record<string, string>,
) => Promise<Reply>

export type TestApi = {
  url: string
  database: Database
  databaseUrl: string
  /** Sends a request as a member of OWN unless another token is given; null sends none. */
  ask: Ask
  /** Records what a worker records when it has applied a load balancer's newest generation. */
  apply: (loadBalancerId: string) => Promise<void>
  /** Records what a worker records when it failed. */
  fail: (loadBalancerId: string, code?: string) => Promise<void>
  /** Runs a function. @returns the SQL that the API sent during it */
  statementsOf: (body: () => Promise<unknown>) => Promise<string[]>
  stop: () => Promise<void>
}

/** The API over HTTP on a new database. */
export async function startTestApi(
  options: {
    network?: NetworkDriver
    /** Default: accepts every reference. */
    certificates?: CertificateSource
    providers?: string[]
    /** The machines that there are; default: those of the default settings. */
    offers?: ComputeOffers
    quota?: Record<string, number>
    /** For the `load_balancer` group of the configuration. */
    settings?: Record<string, unknown>
    /** Instead of tokens that name their caller. */
    validate?: TokenValidator
  } = {},
): Promise<TestApi> {
  const testDatabase = await createTestDatabase()
  const database = testDatabase.of('load_balancer')
  const capabilitiesOf = (name: string) => {
    if (name === 'noop_driver') return noopCapabilities
    // With its datapath in userspace.
    return name === 'ovn' ? ovnCapabilities('netdev') : amphoraCapabilities(options.offers ?? offersOf())
  }
  const providers = (options.providers ?? ['amphora', 'other']).map(name => ({
    ...capabilitiesOf(name),
    name,
    description: `The ${name} provider`,
  }))
  const app = createLoadBalancerApi({
    database,
    network: options.network ?? createNoopNetworkDriver(),
    certificates: options.certificates ?? ANY_CERTIFICATE,
    validate: options.validate ?? (async token => callerOf(token)),
    identityUrl: 'http://identity.test/v3',
    providers,
    config: configurationSchema.parse({ load_balancer: { quota: options.quota, ...options.settings } }).load_balancer,
    log: createLog('test', 'silent'),
  })
  const server = await startServer(app, { host: '127.0.0.1', port: 0 })
  const ask: Ask = async (method, path, body, token = tokenOf('member'), headers = {}) => {
    const text = typeof body === 'string' ? body : JSON.stringify(body)
    const answer = await fetch(server.url + path, {
      method,
      headers: {
        ...(token === null ? {} : { 'X-Auth-Token': token }),
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: text }),
      signal: AbortSignal.timeout(20_000),
    })
    const received = await answer.text()
    const isJson = (answer.headers.get('content-type') ?? '').includes('json')
    return {
      status: answer.status,
      headers: answer.headers,
      text: received,
      body: isJson && received !== '' ? JSON.parse(received) : {},
    }
  }
  return {
    url: server.url,
    database,
    databaseUrl: testDatabase.urlOf('load_balancer'),
    ask,
    apply: id => settleNewest(database, id),
    fail: (id, code = 'broken') => failNewest(database, id, code),
    statementsOf: async body => {
      const statements: string[] = []
      const note = ({ sql }: { sql: string }) => statements.push(sql)
      database.on('query', note)
      await body()
      database.removeListener('query', note)
      return statements
    },
    stop: async () => {
      await server.stop()
      await testDatabase.drop()
    },
  }
}
