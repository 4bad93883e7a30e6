import { Agent, request } from 'node:http'
import { createConnection } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'

/** The requests of a hostile tenant, until it is stopped. */
export type Load = {
  /** The loopback address that it uses. */
  from: string
  url: string
} & (
  | { kind: 'sockets'; count: number }
  /** Requests whose bodies arrive one byte per second. */
  | { kind: 'slow bodies'; count: number; token: string }
  | ({ kind: 'requests'; clients: number; method: string; token?: string; perSecond?: number } & Content)
)

type Content = {
  /** One of the bodies below, or the body itself. */
  body: keyof typeof BODIES | object
  /** The subnet of VIPs in trees. */
  subnet?: string
  /** Whether each created object is deleted at once, with its children. */
  isRemoved?: boolean
}

type Requests = Load & { kind: 'requests' }

const PAUSE_AFTER_REFUSAL_MS = 1000
/** How long to wait before reopening a closed connection. */
const PAUSE_AFTER_CLOSE_MS = 10_000

const login = (name: string) => ({
  auth: { identity: { methods: ['password'], password: { user: { name, password: 'x', domain: { id: 'default' } } } } },
})

const member = (n: number) => ({ address: `198.18.${Math.floor(n / 200)}.${(n % 200) + 1}`, protocol_port: 80 })

const BODIES = {
  none: () => undefined,
  'wrong login': () => login('demo'),
  'wrong logins': (client: number) => login(`nobody${client}`),
  rescope: (_: number, { token }: Requests) => ({
    auth: { identity: { methods: ['token'], token: { id: token ?? '' } } },
  }),
  /** 100 kB in which nothing is valid. */
  invalid: () => ({
    loadbalancer: {
      vip_subnet_id: 'x',
      listeners: Array.from({ length: 2000 }, () => ({ protocol: 'BOGUS', protocol_port: -1, a: 1 })),
    },
  }),
  tree: (_: number, { subnet }: Requests) => ({
    loadbalancer: {
      vip_subnet_id: subnet ?? '11111111-2222-4333-8444-555555555555',
      provider: 'noop_driver',
      listeners: Array.from({ length: 12 }, (_, at) => ({
        protocol: 'HTTP',
        protocol_port: 1000 + at,
        default_pool: {
          name: `pool ${at}`,
          protocol: 'HTTP',
          lb_algorithm: 'ROUND_ROBIN',
          members: Array.from({ length: 200 }, (_, n) => member(at * 200 + n)),
        },
      })),
    },
  }),
}

/** Answers by status, `failed` for none. */
const outcomes: Record<string, number> = {}
const note = (outcome: string | number) => {
  outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
}

type Answer = { status: number; text: string }

async function ask(agent: Agent, load: Omit<Requests, 'body'>, text: string | undefined): Promise<Answer> {
  return new Promise(resolve => {
    const { method, token, url } = load
    const failed = () => resolve({ status: 0, text: '' })
    const headers = {
      ...(token !== undefined && { 'X-Auth-Token': token }),
      ...(text !== undefined && { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }),
    }
    const asked = request(url, { method, agent, headers, localAddress: load.from }, answer => {
      let text = ''
      answer.setEncoding('utf8').on('data', chunk => {
        text += chunk
      })
      answer.on('end', () => resolve({ status: answer.statusCode ?? 0, text }))
      answer.on('error', failed)
    })
    asked.on('error', failed)
    asked.end(text)
  })
}

async function client(load: Requests, number: number): Promise<void> {
  const agent = new Agent({ keepAlive: true })
  const body = typeof load.body === 'string' ? BODIES[load.body](number, load) : load.body
  const text = body === undefined ? undefined : JSON.stringify(body)
  const pause = load.perSecond === undefined ? 0 : (1000 * load.clients) / load.perSecond
  for (;;) {
    const started = performance.now()
    const { status, text: answered } = await ask(agent, load, text)
    note(status === 0 ? 'failed' : status)
    const [made] = status === 201 && load.isRemoved === true ? Object.values(JSON.parse(answered)) : []
    if (made !== undefined) {
      const { id } = made as { id: string }
      await ask(agent, { ...load, method: 'DELETE', url: `${load.url}/${id}?cascade=true` }, undefined)
    }
    const isRefused = status === 0 || status === 429 || status === 503
    const rest = Math.max(isRefused ? PAUSE_AFTER_REFUSAL_MS : 0, pause - (performance.now() - started))
    if (rest > 0) await delay(rest)
  }
}

function holdSocket(load: Load & { kind: 'sockets' }): void {
  const { hostname, port } = new URL(load.url)
  const socket = createConnection({ host: hostname, port: Number(port), localAddress: load.from })
  socket.on('connect', () => note('connected'))
  socket.on('error', () => note('failed'))
  socket.on('close', () => {
    note('closed')
    setTimeout(() => holdSocket(load), PAUSE_AFTER_CLOSE_MS)
  })
}

function sendSlowly(load: Load & { kind: 'slow bodies' }): void {
  const { hostname, port, host, pathname } = new URL(load.url)
  const socket = createConnection({ host: hostname, port: Number(port), localAddress: load.from })
  const head = [`POST ${pathname} HTTP/1.1`, `Host: ${host}`, `X-Auth-Token: ${load.token}`]
  socket.write(`${head.join('\r\n')}\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{`)
  const more = setInterval(() => socket.write(' '), 1000)
  socket.on('error', () => note('failed'))
  socket.on('close', () => {
    clearInterval(more)
    note('closed')
    setTimeout(() => sendSlowly(load), PAUSE_AFTER_REFUSAL_MS)
  })
}

async function holdSockets(load: Load & { kind: 'sockets' }): Promise<void> {
  for (let opened = 0; opened < load.count; opened++) {
    holdSocket(load)
    if (opened % 100 === 99) await delay(10)
  }
}

process.on('SIGTERM', () => {
  process.stdout.write(JSON.stringify(outcomes), () => process.exit(0))
})

const loads = JSON.parse(process.argv[2] ?? '[]') as Load[]
for (const load of loads) {
  if (load.kind === 'sockets') void holdSockets(load)
  else if (load.kind === 'slow bodies') for (let opened = 0; opened < load.count; opened++) sendSlowly(load)
  else for (let number = 0; number < load.clients; number++) void client(load, number)
}
