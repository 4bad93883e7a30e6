import { createConnection } from 'node:net'
import t, { type Test } from 'tap'
import { callerOf, FOREIGN, tokenOf } from '../../support/clients/callers.js'
import { startTestKeyManager } from '../../support/clients/key-manager-api.js'
import { SUBNET, startTestApi } from '../../support/clients/load-balancer-api.js'
import { startNetworkApi } from '../../support/clients/network-api.js'
import { requestAsWritten } from '../../support/clients/raw-request.js'
import { startIdentity } from '../../support/worlds/identity.js'

type Sketch = {
  url: string
  /** A path that `token` may read, and `stranger` may not. */
  path: string
  token: string
  stranger: string
  /** The status that a stranger gets. */
  refusal: number
  /** Whether an answer is an error in this API's own shape. */
  isFault: (body: Record<string, unknown>, status: number, message: RegExp) => boolean
}

const hasText = (text: unknown, pattern: RegExp): boolean => typeof text === 'string' && pattern.test(text)

async function loadBalancing(t: Test): Promise<Sketch> {
  const api = await startTestApi()
  t.teardown(api.stop)
  const { body } = await api.ask('POST', '/v2/lbaas/loadbalancers', { loadbalancer: { vip_subnet_id: SUBNET } })
  const { id } = body.loadbalancer as { id: string }
  return {
    url: api.url,
    path: `/v2/lbaas/loadbalancers/${id}`,
    token: tokenOf('member'),
    stranger: tokenOf('member', FOREIGN),
    refusal: 403,
    isFault: ({ faultcode, faultstring, debuginfo }, _, message) =>
      faultcode === 'Client' && debuginfo === null && hasText(faultstring, message),
  }
}

async function keyManagement(t: Test): Promise<Sketch> {
  const api = await startTestKeyManager()
  t.teardown(api.stop)
  return {
    url: api.url,
    path: `/v1/secrets/${await api.store()}`,
    token: tokenOf('member'),
    stranger: tokenOf('member', FOREIGN),
    refusal: 403,
    isFault: ({ code, title, description }, status, message) =>
      code === status && typeof title === 'string' && hasText(description, message),
  }
}

async function networking(t: Test): Promise<Sketch> {
  const api = await startNetworkApi()
  t.teardown(api.stop)
  const { id } = await api.create('network', { name: 'n' })
  return {
    url: api.url,
    path: `/v2.0/networks/${id}`,
    token: 'a/member,reader',
    stranger: 'b/member,reader',
    refusal: 404,
    isFault: ({ NeutronError }, _, message) => hasText((NeutronError as { message?: unknown }).message, message),
  }
}

async function identity(t: Test): Promise<Sketch> {
  const server = await startIdentity()
  t.teardown(server.stop)
  return {
    url: server.url,
    path: `/v3/projects/${server.projects.admin}`,
    token: await server.tokenOf('admin', 'admin'),
    stranger: await server.tokenOf('demo', 'demo'),
    refusal: 403,
    isFault: ({ error }, status, message) => {
      const { code, message: text } = error as { code?: unknown; message?: unknown }
      return code === status && hasText(text, message)
    },
  }
}

/** Sends bytes. @returns the answer until the server closes the connection */
function exchange(url: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = createConnection({ host: hostname, port: Number(port) }, () => socket.write(bytes))
    let received = ''
    socket.setTimeout(15_000, () => socket.destroy(new Error('There was no answer')))
    socket.on('data', data => {
      received += String(data)
    })
    socket.on('close', () => resolve(received))
    socket.on('error', error => (received === '' ? reject(error) : resolve(received)))
  })
}

const MALFORMED: readonly [string, string, number, RegExp][] = [
  [
    'headers beyond the limit',
    `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(17_000)}\r\n\r\n`,
    431,
    /larger than \d+ bytes/,
  ],
  ['no HTTP', 'hello\r\n\r\n', 400, /not valid HTTP: /],
  ['a header without a colon', 'GET / HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n', 400, /not valid HTTP: /],
  [
    'two lengths',
    'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx',
    400,
    /not valid HTTP: /,
  ],
  ['no Host', 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400, /no Host header/],
]

for (const [name, start] of Object.entries({ identity, keyManagement, loadBalancing, networking })) {
  t.test(name, async t => {
    const { url, path, token, stranger, refusal, isFault } = await start(t)
    const ask = async (path: string, token: string | null) => {
      const lines = [`GET ${path} HTTP/1.1`, ...(token === null ? [] : [`X-Auth-Token: ${token}`])]
      return requestAsWritten(url, lines)
    }
    const statusOf = (answer: string) => Number(answer.split(' ')[1])
    const bodyOf = (answer: string) => answer.slice(answer.indexOf('\r\n\r\n') + 4)

    await t.test('repeated slashes in a path count as one, for rights too', async t => {
      const plain = await ask(path, token)
      t.equal(statusOf(plain), 200)
      for (const spelling of [
        `/${path}`,
        path.replaceAll('/', '//'),
        path.replace(/\/(?=[^/]+$)/, '////'),
        `//${path}//`,
      ]) {
        const answer = await ask(spelling, token)
        // Keystone's and Barbican's items have no trailing slash; a repeated one is as good as one.
        const single = await ask(spelling.replace(/\/+/g, '/'), token)
        t.equal(statusOf(answer), statusOf(single), spelling)
        t.equal(bodyOf(answer), bodyOf(single), 'and the answer is the same, links included')
        t.equal(statusOf(await ask(spelling, null)), 401, 'a token is needed')
        if (statusOf(single) === 200) t.equal(statusOf(await ask(spelling, stranger)), refusal, 'and a right')
      }
    })

    await t.test('a request that is not HTTP gets an error in the API’s own shape', async t => {
      for (const [what, bytes, status, message] of MALFORMED) {
        const answer = await exchange(url, bytes)
        t.equal(statusOf(answer), status, what)
        t.match(answer, /\r\nContent-Type: application\/json[\s\S]*\r\nConnection: close\r\n/i)
        t.match(answer, /\r\nx-openstack-request-id: req-/i)
        t.ok(isFault(JSON.parse(bodyOf(answer)), status, message), bodyOf(answer))
      }
    })
  })
}

t.test('access rules of an application credential see the path that is served', async t => {
  const api = await startTestApi({
    validate: async token => {
      const caller = callerOf(token)
      const rule = { service: 'load-balancer', method: 'GET', path: '/v2/lbaas/*' } as const
      return caller && { ...caller, accessRules: [rule] }
    },
  })
  t.teardown(api.stop)
  const { body } = await api.ask('GET', '/v2/lbaas/loadbalancers')
  t.same(body.loadbalancers, [], 'one level below lbaas is allowed')
  const inner = `/v2/lbaas/loadbalancers/${SUBNET}`
  t.equal((await api.ask('GET', inner)).status, 401, 'two are not')
  for (const spelling of [inner.replace('/lbaas', '//lbaas'), `/${inner}`, inner.replace(/\/(?=[^/]+$)/, '//')]) {
    t.equal((await api.ask('GET', spelling)).status, 401, spelling)
  }
  t.equal((await api.ask('GET', '/v2//lbaas//loadbalancers')).status, 200)
})
