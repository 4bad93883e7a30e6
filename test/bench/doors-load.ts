import { Agent, request } from 'node:http'
import { createConnection } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'

/** What a hostile tenant does, until it is stopped. */
export type Load = {
  /** The address of loopback from which it comes. */
  from: string
  url: string
} & (
  | { kind: 'sockets'; count: number }
  | { kind: 'requests'; clients: number; method: string; token?: string; body: keyof typeof BODIES; perSecond?: number }
)

const PAUSE_AFTER_REFUSAL_MS = 1000
/** How long a connection that was closed waits before it is back. */
const PAUSE_AFTER_CLOSE_MS = 10_000

const login = (name: string) => ({
  auth: { identity: { methods: ['password'], password: { user: { name, password: 'x', domain: { id: 'default' } } } } },
})

const member = (n: number) => ({ address: `198.18.${Math.floor(n / 200)}.${(n % 200) + 1}`, protocol_port: 80 })

const BODIES = {
  none: () => undefined,
  'wrong login': () => login('demo'),
  'wrong logins': (client: number) => login(`nobody${client}`),
  rescope: (_: number, token: string) => ({ auth: { identity: { methods: ['token'], token: { id: token } } } }),
  /** 100 kB of which nothing is right. */
  invalid: () => ({
    loadbalancer: {
      vip_subnet_id: 'x',
      listeners: Array.from({ length: 2000 }, () => ({ protocol: 'BOGUS', protocol_port: -1, a: 1 })),
    },
  }),
  tree: () => ({
    loadbalancer: {
      vip_subnet_id: '11111111-2222-4333-8444-555555555555',
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

/** Answers by their status, `failed` for none. */
const outcomes: Record<string, number> = {}
const note = (outcome: string | number) => {
  outcomes[outcome] = (outcomes[outcome] ?? 0) + 1
}

async function ask(agent: Agent, load: Load & { kind: 'requests' }, text: string | undefined): Promise<number> {
  return new Promise(resolve => {
    const { method, token, url } = load
    const headers = {
      ...(token !== undefined && { 'X-Auth-Token': token }),
      ...(text !== undefined && { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) }),
    }
    const asked = request(url, { method, agent, headers, localAddress: load.from }, answer => {
      answer.resume()
      answer.on('end', () => resolve(answer.statusCode ?? 0))
      answer.on('error', () => resolve(0))
    })
    asked.on('error', () => resolve(0))
    asked.end(text)
  })
}

async function client(load: Load & { kind: 'requests' }, number: number): Promise<void> {
  const agent = new Agent({ keepAlive: true })
  const body = BODIES[load.body](number, load.token ?? '')
  const text = body === undefined ? undefined : JSON.stringify(body)
  const pause = load.perSecond === undefined ? 0 : (1000 * load.clients) / load.perSecond
  for (;;) {
    const started = performance.now()
    const status = await ask(agent, load, text)
    note(status === 0 ? 'failed' : status)
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
  else for (let number = 0; number < load.clients; number++) void client(load, number)
}
