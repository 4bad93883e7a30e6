import { randomBytes } from 'node:crypto'
import { configurationSchema } from '../../../controller/config/schema.js'
import type { Database } from '../../../controller/database/connection.js'
import { startServer } from '../../../controller/http/server.js'
import { createIdentityApi } from '../../../controller/identity/api.js'
import { type BootstrapOptions, type Bootstrapped, bootstrapIdentity } from '../../../controller/identity/bootstrap.js'
import { createLog, type Logger } from '../../../controller/log/log.js'
import { createTestDatabase } from '../database/database.js'

export type Reply = {
  status: number
  headers: Headers
  /** The answer: parsed JSON, or undefined for an empty body. */
  body: unknown
  /** The text at a path such as `user.id`. @throws Error when there is none */
  text: (path: string) => string
  /** The list at a path. @throws Error when there is none */
  list: (path: string) => Record<string, unknown>[]
}

export type CallOptions = { token?: string; body?: unknown; headers?: Record<string, string> }

export type IdentityServer = {
  url: string
  database: Database
  databaseUrl: string
  projects: Bootstrapped['projects']
  /** `call('GET /v3/users', { token })` */
  call: (operation: string, options?: CallOptions) => Promise<Reply>
  /** Logs in a user of the default domain; the scope is a project's name or Keystone's scope object. */
  login: (name: string, scope?: string | object, password?: string) => Promise<Reply>
  /** The same, when only the token matters. */
  tokenOf: (name: string, scope?: string | object, password?: string) => Promise<string>
  stop: () => Promise<void>
}

/** The cheapest hash: tests log in thousands of times. */
export const PASSWORD_HASH_ROUNDS = 14

export const bootstrapOptions: BootstrapOptions = {
  region: 'RegionOne',
  adminPassword: 'admin-pw',
  passwordHashRounds: PASSWORD_HASH_ROUNDS,
  servicePasswords: { barbican: 'barbican-pw', octavia: 'octavia-pw' },
  demoPassword: 'demo-pw',
  endpoints: {
    identity: 'http://127.0.0.1:5000/v3',
    'load-balancer': 'http://127.0.0.1:9876',
    'key-manager': 'http://127.0.0.1:9311',
    network: 'http://127.0.0.1:9696',
  },
}

/** An identity service on a new database, bootstrapped, on a free port. Passwords are the user's name and `-pw`. */
export async function startIdentity(
  environment: { publicUrl?: string; settings?: object; log?: Logger } = {},
): Promise<IdentityServer> {
  const tests = await createTestDatabase()
  const database = tests.of('identity')
  const { projects } = await bootstrapIdentity(database, bootstrapOptions)
  const config = configurationSchema.parse({
    identity: {
      public_url: environment.publicUrl,
      password_hash_rounds: PASSWORD_HASH_ROUNDS,
      ...environment.settings,
    },
  })
  const app = createIdentityApi({
    database,
    config,
    log: environment.log ?? createLog('identity', 'error'),
    credentialKey: randomBytes(32),
  })
  const server = await startServer(app, { host: '127.0.0.1', port: 0 })
  // Clients follow the catalogue, and the port is known only now.
  await bootstrapIdentity(database, {
    ...bootstrapOptions,
    endpoints: { ...bootstrapOptions.endpoints, identity: server.url },
  })
  const call = (operation: string, options: CallOptions = {}) => send(server.url, operation, options)
  const login = (name: string, scope?: string | object, password = `${name}-pw`) =>
    call('POST /v3/auth/tokens', { body: passwordLogin(name, password, scope) })
  return {
    url: server.url,
    database,
    databaseUrl: tests.urlOf('identity'),
    projects,
    call,
    login,
    tokenOf: async (...args) => {
      const reply = await login(...args)
      const token = reply.headers.get('X-Subject-Token')
      if (token === null) throw new Error(`Login of ${args[0]} was answered by ${reply.status}`)
      return token
    },
    stop: async () => {
      await server.stop()
      await tests.drop()
    },
  }
}

export const passwordLogin = (name: string, password: string, scope?: string | object) => ({
  auth: {
    identity: { methods: ['password'], password: { user: { name, password, domain: { id: 'default' } } } },
    ...(scope !== undefined && {
      scope: typeof scope === 'object' ? scope : { project: { name: scope, domain: { name: 'Default' } } },
    }),
  },
})

export async function send(base: string, operation: string, { token, body, headers }: CallOptions): Promise<Reply> {
  const [method, path] = operation.split(' ')
  const response = await fetch(`${base}${path}`, {
    method: method!,
    redirect: 'manual',
    headers: {
      ...(token !== undefined && { 'X-Auth-Token': token }),
      ...(body !== undefined && { 'Content-Type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    signal: AbortSignal.timeout(20_000),
  })
  const content = await response.text()
  const parsed: unknown = content === '' ? undefined : JSON.parse(content)
  return {
    status: response.status,
    headers: response.headers,
    body: parsed,
    text: path => {
      const found = at(parsed, path)
      if (typeof found !== 'string') throw new Error(`${operation}: no text at ${path} in ${content}`)
      return found
    },
    list: path => {
      const found = at(parsed, path)
      if (!Array.isArray(found)) throw new Error(`${operation}: no list at ${path} in ${content}`)
      return found
    },
  }
}

function at(value: unknown, path: string): unknown {
  return path.split('.').reduce((found: unknown, key) => (found as Record<string, unknown> | undefined)?.[key], value)
}
