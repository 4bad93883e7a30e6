import type { Test } from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { startServer } from '../../../controller/http/server.js'
import type { Caller } from '../../../controller/identity/caller.js'
import { createLog } from '../../../controller/log/log.js'
import { createNetworkApi } from '../../../controller/network/api.js'
import { createLocalDriver } from '../../../controller/network/local/driver.js'
import { createTestDatabase } from '../database/database.js'

/** A token is `project/role,role`. It stands in for the identity service, which has its own tests. */
export const ADMIN = 'admin-project/admin,member,reader'
export const A = 'a/member,reader'
export const B = 'b/member,reader'
export const READER = 'a/reader'

export type Item = Record<string, unknown> & { id: string }
export type Reply = { status: number; headers: Headers; body: Record<string, unknown> }

/** The paths of collections, by the key of one object. */
export const PLURALS = {
  network: 'networks',
  subnet: 'subnets',
  port: 'ports',
  router: 'routers',
  floatingip: 'floatingips',
  security_group: 'security-groups',
  security_group_rule: 'security-group-rules',
} as const

async function validate(token: string): Promise<Caller | null> {
  const [project, roles] = token.split('/')
  if (project === undefined || roles === undefined) return null
  const domain = { id: 'default', name: 'Default' }
  return {
    user: { id: 'user', name: 'user', domain },
    project: project === '' ? null : { id: project, name: project, domain },
    domain: null,
    system: false,
    roles: roles.split(','),
    expiresAt: new Date(Date.now() + 3_600_000),
  }
}

/** What a request is refused with; by default, one of project A. */
export type Refusal = readonly [
  operation: string,
  body: unknown,
  status: number,
  type: string,
  message: RegExp,
  token?: string,
]

/**
 * A network service over a new database, once with the local driver and once with the noop driver, which
 * accepts every id.
 */
export async function startNetworkApi(settings: Record<string, unknown> = {}) {
  const config = configurationSchema.parse({ network: settings }).network
  const database = await createTestDatabase()
  const db = database.of('network')
  const options = {
    database: db,
    validate,
    identityUrl: 'http://127.0.0.1:5000/v3',
    log: createLog('network', 'error'),
  }
  const app = createNetworkApi({ ...options, config })
  const anywhere = { host: '127.0.0.1', port: 0 }
  const server = await startServer(app, anywhere)
  const noop = await startServer(createNetworkApi({ ...options, config: { ...config, driver: 'noop' } }), anywhere)

  async function call(
    operation: string,
    token: string | null,
    body?: unknown,
    { base = server.url, headers = {} }: { base?: string; headers?: Record<string, string> } = {},
  ): Promise<Reply> {
    const [method, path] = operation.split(' ')
    const response = await fetch(`${base}${path}`, {
      method: method!,
      headers: {
        ...(token === null ? {} : { 'X-Auth-Token': token }),
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
      signal: AbortSignal.timeout(20_000),
    })
    const text = await response.text()
    return { status: response.status, headers: response.headers, body: text === '' ? {} : JSON.parse(text) }
  }

  const create = async (kind: keyof typeof PLURALS, body: object, token = A): Promise<Item> => {
    const reply = await call(`POST /v2.0/${PLURALS[kind]}`, token, { [kind]: body })
    if (reply.status !== 201) throw new Error(`${kind}: ${reply.status} ${JSON.stringify(reply.body)}`)
    return reply.body[kind] as Item
  }
  const act = (router: Item, action: string, body: object, token = A) =>
    call(`PUT /v2.0/routers/${router.id}/${action}`, token, body)

  return {
    db,
    driver: createLocalDriver(db, config.shared_addresses),
    app,
    url: server.url,
    noopUrl: noop.url,
    call,
    create,
    show: async (path: string, key: string, token = A) => (await call(`GET /v2.0/${path}`, token)).body[key] as Item,
    /** A network of the project with one subnet. */
    place: async (cidr: string, token = A, subnet: object = {}) => {
      const network = await create('network', {}, token)
      return { network, subnet: await create('subnet', { network_id: network.id, cidr, ...subnet }, token) }
    },
    connect: (router: Item, body: object, token = A) => act(router, 'add_router_interface', body, token),
    disconnect: (router: Item, body: object, token = A) => act(router, 'remove_router_interface', body, token),
    refuseAll: async (t: Test, refusals: readonly Refusal[]): Promise<void> => {
      for (const [operation, body, status, type, message, token = A] of refusals) {
        isFault(t, await call(operation, token, body), status, type, message)
      }
    },
    list: async (plural: string, query: string, token = A, base = server.url): Promise<Item[]> => {
      const reply = await call(`GET /v2.0/${plural}?${query}`, token, undefined, { base })
      if (reply.status !== 200) throw new Error(`${query}: ${reply.status} ${JSON.stringify(reply.body)}`)
      return reply.body[plural.replaceAll('-', '_')] as Item[]
    },
    stop: async () => {
      await Promise.all([server.stop(), noop.stop()])
      await database.drop()
    },
  }
}

export const ids = (items: readonly Item[]) => items.map(item => item.id)

/** Fails unless the reply is this Neutron error. */
export function isFault(t: Test, reply: Reply, status: number, type: string, message: RegExp | string = /./) {
  t.match(reply, { status, body: { NeutronError: { type, message, detail: '' } } }, `${status} ${type}`)
}
