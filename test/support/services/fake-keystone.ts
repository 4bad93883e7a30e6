import {
  createServer as createHttpServer,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => unknown

export type FakeKeystone = {
  /** Ends in /v3. */
  url: string
  /** How often each operation was called. */
  asked: { login: number; validate: number }
  connections: () => number
  /** The queries of validations. */
  queries: string[]
  /** The handlers of requests; may be replaced at any time. */
  login: Handler
  validate: Handler
  /** Own tokens issued so far, all of which it accepts. */
  given: Set<string>
  /** Stops listening, and closes every connection. */
  stop: () => Promise<void>
  /** Listens again, at the same port. */
  start: () => Promise<void>
}

const project = { id: 'p1', name: 'service', domain: { id: 'default', name: 'Default' } }

/** The document of a valid token of a member, with some members replaced. */
export const tokenDocument = (members: object = {}, lifeSeconds = 3600) => ({
  token: {
    methods: ['password'],
    user: { id: 'u1', name: 'alice', domain: { id: 'default', name: 'Default' }, password_expires_at: null },
    audit_ids: ['a'],
    issued_at: new Date().toISOString(),
    expires_at: new Date(Date.now() + lifeSeconds * 1000).toISOString(),
    project,
    is_domain: false,
    roles: [{ id: 'r', name: 'Member' }],
    ...members,
  },
})

export function answer(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}) {
  response.writeHead(status, { 'Content-Type': 'application/json', ...headers })
  response.end(typeof body === 'string' ? body : JSON.stringify(body))
}

export const notFound: Handler = (_, response) =>
  answer(response, 404, { error: { code: 404, title: 'Not Found', message: 'Could not find token.' } })

/**
 * A Keystone that knows every token that begins with `good`, and can be told to misbehave. It stops at the end
 * of the test.
 * @param tls certificate and key, to serve HTTPS
 */
export async function startFakeKeystone(t: Test, tls?: { cert: string; key: string }): Promise<FakeKeystone> {
  let connections = 0
  let url = ''
  let port = 0
  const listener: RequestListener = (request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', chunk => {
      body += chunk
    })
    request.on('end', () => {
      const { pathname, search } = new URL(request.url ?? '/', url)
      if (pathname !== '/v3/auth/tokens') return answer(response, 404, 'nothing here')
      if (request.method === 'POST') {
        fake.asked.login++
        return fake.login(request, response, body)
      }
      fake.asked.validate++
      fake.queries.push(search)
      if (!fake.given.has(String(request.headers['x-auth-token']))) {
        return answer(response, 401, { error: { code: 401, title: 'Unauthorized', message: 'no' } })
      }
      return fake.validate(request, response, body)
    })
  }
  const server = tls === undefined ? createHttpServer(listener) : createHttpsServer(tls, listener)
  server.on('connection', () => {
    connections++
  })
  const start = () =>
    new Promise<void>(resolve => {
      server.listen(port, '127.0.0.1', () => {
        port = (server.address() as AddressInfo).port
        url = `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}`
        resolve()
      })
    })
  const stop = () =>
    new Promise<void>(resolve => {
      server.close(() => resolve())
      server.closeAllConnections()
    })
  const fake: FakeKeystone = {
    url: '',
    asked: { login: 0, validate: 0 },
    connections: () => connections,
    queries: [],
    given: new Set(),
    login: (_, response) => {
      const token = `own-${fake.given.size}`
      fake.given.add(token)
      answer(response, 201, tokenDocument({ roles: [{ id: 's', name: 'service' }] }), { 'X-Subject-Token': token })
    },
    validate: (request, response, body) =>
      String(request.headers['x-subject-token']).startsWith('good')
        ? answer(response, 200, tokenDocument())
        : notFound(request, response, body),
    start,
    stop,
  }
  await start()
  fake.url = `${url}/v3`
  t.teardown(stop)
  return fake
}
