import type { CertificateSource } from '../../../controller/certificates/certificate-source.js'
import { configurationSchema } from '../../../controller/config/schema.js'
import type { Database } from '../../../controller/database/connection.js'
import { startServer } from '../../../controller/http/server.js'
import type { Caller, TokenValidator } from '../../../controller/identity/caller.js'
import { createLoadBalancerApi } from '../../../controller/load-balancer/api.js'
import { createLog } from '../../../controller/log/log.js'
import type { NetworkDriver } from '../../../controller/network/driver.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'
import { amphoraOffer } from '../../../controller/provider/amphora/capabilities.js'
import { noopOffer } from '../../../controller/provider/noop/capabilities.js'
import { createTestDatabase } from '../database/database.js'
import { failNewest, settleNewest } from '../database/worker-outcomes.js'

/** Projects of the tests' callers. */
export const OWN = 'a'.repeat(32)
export const FOREIGN = 'b'.repeat(32)
/** A subnet id; the noop network driver knows every id. */
export const SUBNET = '11111111-1111-4111-8111-111111111111'

/** Instead of a project: the whole system. */
export const SYSTEM = 'system'

/** A token of the tests says who it is: `<role>[,<role>]@<project>`, or `<role>@` without a project. */
export const tokenOf = (roles: string, project = OWN): string => `${roles}@${project}`

export function callerOf(token: string): Caller | null {
  const [roles, project] = token.split('@')
  if (roles === undefined || project === undefined) return null
  const domain = { id: 'default', name: 'Default' }
  return {
    user: { id: `user-${roles}`, name: roles, domain },
    project: project === '' || project === SYSTEM ? null : { id: project, name: project, domain },
    domain: null,
    system: project === SYSTEM,
    roles: roles.split(','),
    expiresAt: new Date(Date.now() + 3_600_000),
  }
}

export type Json = { [key: string]: JsonValue }
export type JsonValue = string | number | boolean | null | JsonValue[] | Json

export type Reply = { status: number; headers: Headers; text: string; body: Json }

/** Takes every reference as good: for tests that are about something else. */
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
  /** A request as a member of the own project unless another token is given; null sends none. */
  ask: Ask
  /** What a worker leaves when all of a load balancer's newest generation is in effect. */
  apply: (loadBalancerId: string) => Promise<void>
  /** What a worker leaves when it failed. */
  fail: (loadBalancerId: string, code?: string) => Promise<void>
  /** Runs something and returns the SQL that the API sent meanwhile. */
  statementsOf: (body: () => Promise<unknown>) => Promise<string[]>
  stop: () => Promise<void>
}

/** The API over HTTP on a database of its own. */
export async function startTestApi(
  options: {
    network?: NetworkDriver
    /** Takes every reference as good when not given. */
    certificates?: CertificateSource
    providers?: string[]
    quota?: Record<string, number>
    /** Of the `load_balancer` group of the configuration. */
    settings?: Record<string, unknown>
    /** Instead of tokens that say who they are. */
    validate?: TokenValidator
  } = {},
): Promise<TestApi> {
  const testDatabase = await createTestDatabase()
  const database = testDatabase.of('load_balancer')
  const providers = (options.providers ?? ['amphora', 'other']).map(name => ({
    ...(name === 'noop_driver' ? noopOffer : amphoraOffer),
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

/** What is at a path inside a reply, as text for messages or a value for further use. */
export function at(value: JsonValue | undefined, ...path: (string | number)[]): JsonValue | undefined {
  return path.reduce<JsonValue | undefined>((inner, key) => {
    if (Array.isArray(inner)) return inner[Number(key)]
    return typeof inner === 'object' && inner !== null ? inner[key] : undefined
  }, value)
}

export const idIn = (reply: Reply, key: string): string => String(at(reply.body, key, 'id'))
