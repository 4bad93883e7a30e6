import { setTimeout as delay } from 'node:timers/promises'
import { type BenchInstance, startInstance } from './instance.js'
import { measure, percentile } from './measure.js'
import { countKeyManagerStatements } from './statements.js'

const CLIENTS = [1, 16] as const
const NOOP = { KRATER_NETWORK_DRIVER: 'noop', KRATER_COMPUTE_DRIVER: 'noop', KRATER_COMPUTE_WARM_AMPHORAE: '0' }
const ROTATED = 10_000

/** Kinds of orders, and how many of each are placed at once. */
const ORDERS = [
  { what: 'aes 256', type: 'key', meta: { algorithm: 'aes', bit_length: 256, mode: 'gcm' }, count: 400 },
  { what: 'ec 256', type: 'asymmetric', meta: { algorithm: 'ec', bit_length: 256 }, count: 200 },
  { what: 'rsa 2048', type: 'asymmetric', meta: { algorithm: 'rsa', bit_length: 2048 }, count: 60 },
  { what: 'rsa 4096', type: 'asymmetric', meta: { algorithm: 'rsa', bit_length: 4096 }, count: 10 },
] as const

type Request = { method: string; path: string; body?: unknown; accept?: string }

/** @returns the tables of the key manager's figures, as Markdown */
export async function benchKeyManager(root: string): Promise<string> {
  const instance = await startInstance(root, NOOP, 28_200)
  try {
    return [
      '### Requests',
      await benchRequests(instance),
      '### Orders',
      await benchOrders(instance),
      '### Other requests while 4096-bit keys are made',
      await benchLatencyBesideKeys(instance),
      '### Rotation',
      await benchRotation(instance),
      memoryTable(instance),
    ].join('\n\n')
  } finally {
    await instance.remove()
  }
}

async function benchRequests(instance: BenchInstance): Promise<string> {
  const rows: string[] = []
  const counter = await countKeyManagerStatements(instance)
  try {
    const store = secret('bench')
    const one = await storeOne(instance)
    for (let made = 0; made < 100; made++) await storeOne(instance)
    const cases: { what: string; count: number; request: Request }[] = [
      { what: 'metadata of a secret', count: 3000, request: { method: 'GET', path: `/v1/secrets/${one}` } },
      {
        what: 'payload of a secret',
        count: 3000,
        request: { method: 'GET', path: `/v1/secrets/${one}/payload`, accept: '*/*' },
      },
      { what: 'list of 100 secrets', count: 600, request: { method: 'GET', path: '/v1/secrets?limit=100' } },
      { what: 'store a secret', count: 1500, request: store },
    ]
    for (const { what, count, request } of cases) {
      for (const clients of CLIENTS) {
        const figures = await measure(instance, { clients, count, request: () => ask(instance, request) })
        const { requestsPerSecond, p50, p99, processor, database } = figures
        const times = [p50.toFixed(1), p99.toFixed(1), processor.toFixed(2), database.toFixed(2)]
        const cells = [requestsPerSecond.toFixed(0), ...times]
        const statements = await counter.countOf(request.method, request.path, request.body)
        rows.push(`| ${what} | ${clients} | ${cells.join(' | ')} | ${statements} |`)
        process.stderr.write(`${rows.at(-1)}\n`)
      }
    }
  } finally {
    await counter.stop()
  }
  return [
    '| request | clients | requests/s | p50 ms | p99 ms | processor ms per request | PostgreSQL ms | statements after authentication |',
    '| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |',
    ...rows,
  ].join('\n')
}

/** One after another for the time to ACTIVE, then many at once for the throughput. */
/** Fewer than a project may have waiting. */
const REQUESTS_AT_ONCE = 100

async function benchOrders(instance: BenchInstance): Promise<string> {
  const rows: string[] = []
  for (const { what, type, meta, count } of ORDERS) {
    const order = { method: 'POST', path: '/v1/orders', body: { type, meta } }
    const waits: number[] = []
    for (let n = 0; n < Math.min(count, 20); n++) {
      const asked = performance.now()
      await untilDone(instance, await refOf(instance, order), 1)
      waits.push(performance.now() - asked)
    }
    waits.sort((a, b) => a - b)
    const started = performance.now()
    const refs: string[] = []
    while (refs.length < count) {
      const group = Math.min(REQUESTS_AT_ONCE, count - refs.length)
      refs.push(...(await Promise.all(Array.from({ length: group }, () => refOf(instance, order)))))
    }
    for (const ref of refs) await untilDone(instance, ref, 5)
    const seconds = (performance.now() - started) / 1000
    rows.push(
      `| ${what} | ${percentile(waits, 0.5).toFixed(1)} | ${percentile(waits, 0.9).toFixed(1)} | ${count} | ${(count / seconds).toFixed(1)} |`,
    )
    process.stderr.write(`${rows.at(-1)}\n`)
  }
  return [
    'From the POST until a GET shows ACTIVE: one order after another, then that many at once.',
    '',
    '| order | ms to ACTIVE, median | 90 % | at once | orders/s |',
    '| --- | ---: | ---: | ---: | ---: |',
    ...rows,
  ].join('\n')
}

async function benchLatencyBesideKeys(instance: BenchInstance): Promise<string> {
  const id = await storeOne(instance)
  const show = { method: 'GET', path: `/v1/secrets/${id}` }
  const look = () => measure(instance, { clients: 1, count: 300, request: () => ask(instance, show) })
  const alone = await look()
  const order = { method: 'POST', path: '/v1/orders', body: { type: 'asymmetric', meta: ORDERS[3].meta } }
  const refs = await Promise.all(Array.from({ length: 12 }, () => refOf(instance, order)))
  const beside = await look()
  for (const ref of refs) await untilDone(instance, ref, 50)
  return [
    '| metadata of a secret, 1 client | p50 ms | p99 ms |',
    '| --- | ---: | ---: |',
    `| nothing else | ${alone.p50.toFixed(1)} | ${alone.p99.toFixed(1)} |`,
    `| while the worker makes RSA keys of 4096 bits on all cores | ${beside.p50.toFixed(1)} | ${beside.p99.toFixed(1)} |`,
  ].join('\n')
}

async function benchRotation(instance: BenchInstance): Promise<string> {
  for (let made = 0; made < ROTATED; made += 16) await Promise.all(Array.from({ length: 16 }, () => storeOne(instance)))
  const timed = async (...args: string[]) => {
    const started = performance.now()
    await instance.krater('key-manager', ...args)
    return ((performance.now() - started) / 1000).toFixed(1)
  }
  return [
    `| over at least ${ROTATED} secrets, the start of the command included | seconds |`,
    '| --- | ---: |',
    `| \`krater key-manager rotate-project-keys --all\` | ${await timed('rotate-project-keys', '--all')} |`,
    `| \`krater key-manager rotate-master-key\` | ${await timed('rotate-master-key')} |`,
    `| \`krater key-manager audit verify\` | ${await timed('audit', 'verify')} |`,
  ].join('\n')
}

function memoryTable(instance: BenchInstance): string {
  return [
    '| process, after all that | resident memory, MiB |',
    '| --- | ---: |',
    ...instance.memory().map(({ name, mebibytes }) => `| ${name} | ${mebibytes.toFixed(0)} |`),
  ].join('\n')
}

const secret = (name: string): Request => ({
  method: 'POST',
  path: '/v1/secrets',
  body: { name, payload: 'a password of some length', payload_content_type: 'text/plain', secret_type: 'passphrase' },
})

const storeOne = async (instance: BenchInstance): Promise<string> =>
  (JSON.parse(await ask(instance, secret('bench'))) as { secret_ref: string }).secret_ref.slice(-36)

const refOf = async (instance: BenchInstance, order: Request): Promise<string> =>
  (JSON.parse(await ask(instance, order)) as { order_ref: string }).order_ref.slice(-36)

async function untilDone(instance: BenchInstance, id: string, pauseMs: number): Promise<void> {
  for (const until = performance.now() + 120_000; performance.now() < until; await delay(pauseMs)) {
    const text = await ask(instance, { method: 'GET', path: `/v1/orders/${id}` })
    const { status } = JSON.parse(text) as { status: string }
    if (status === 'ACTIVE') return
    if (status === 'ERROR') throw new Error(`An order failed: ${text}`)
  }
  throw new Error('An order was not ACTIVE after two minutes.')
}

async function ask(
  { api }: BenchInstance,
  { method, path, body, accept = 'application/json' }: Request,
): Promise<string> {
  const answer = await fetch(`${api.urlOf('key-manager')}${path}`, {
    method,
    headers: {
      'X-Auth-Token': api.token,
      Accept: accept,
      ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(30_000),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${method} ${path} was answered ${answer.status}: ${text}`)
  return text
}
