import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http'
import { pipeline } from 'node:stream/promises'
import { setTimeout as rest } from 'node:timers/promises'
import type { Log } from '../log/log.js'
import { Turns } from '../process/turns.js'
import type { Boot } from '../protocol/boot.js'
import { HAPROXY_METRICS_SOCKET, METRICS_PORT } from '../protocol/paths.js'
import { createMachineUse, type MachineUse } from './machine-use.js'
import { translateMetric } from './translate.js'

/** From the question to the last byte, as slowly as the client may read. */
const ANSWER_MS = 10_000
/** After each answer the agent rests as long as it took, so that metrics take at most half of its time. */
const MAX_REST_MS = 1_000
/** HAProxy opens one at a time; so does an old worker that is still serving. */
const MAX_CONNECTIONS = 8
/** HAProxy passes headers on up to the size of its buffer, 16 KiB. */
const MAX_HEADER_SIZE = 32 * 1024

/**
 * Answers a PROMETHEUS listener with HAProxy's metrics under Octavia's names. HAProxy cannot rename its own.
 * @param describeMore further metrics, as text
 * @returns a function that stops it
 */
export async function answerMetrics(
  limits: NonNullable<Boot['limits']>,
  describeMore: () => string,
  log: Log,
): Promise<() => Promise<void>> {
  const turns = new Turns()
  const measure = createMachineUse(limits)
  const stopped = new AbortController()
  let lastError = ''

  const answer = (response: ServerResponse): Promise<void> =>
    turns.run(async () => {
      if (response.destroyed) return
      const started = performance.now()
      try {
        const ownMetrics = () => describeUse(measure()) + describeMore()
        await sendMetrics(ownMetrics, response, AbortSignal.any([stopped.signal, AbortSignal.timeout(ANSWER_MS)]))
        lastError = ''
      } catch (error) {
        if (!response.headersSent) response.writeHead(502, { connection: 'close' }).end()
        else response.destroy()
        const message = String(error)
        if (message !== lastError) log.error(`cannot answer with metrics: ${message}`)
        lastError = message
      }
      await rest(Math.min(MAX_REST_MS, performance.now() - started), null, { signal: stopped.signal }).catch(() => {})
    })

  const server = createServer(
    { maxHeaderSize: MAX_HEADER_SIZE, headersTimeout: ANSWER_MS, requestTimeout: ANSWER_MS },
    (_, response) => void answer(response),
  )
  server.maxConnections = MAX_CONNECTIONS
  await listen(server, log)
  return async () => {
    stopped.abort()
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
    await turns.idle()
  }
}

function listen(server: Server, log: Log): Promise<void> {
  return new Promise(resolve => {
    server.on('error', error => {
      log.error(`cannot answer with metrics: ${error.message}`)
      resolve()
    })
    server.listen(METRICS_PORT, '127.0.0.1', resolve)
  })
}

async function sendMetrics(ownMetrics: () => string, response: ServerResponse, signal: AbortSignal): Promise<void> {
  const source = await askHaproxy(signal)
  response.writeHead(200, {
    'content-type': 'text/plain; version=0.0.4',
    'cache-control': 'no-cache',
    connection: 'close',
  })
  response.write(ownMetrics())
  await pipeline(source.setEncoding('utf8'), translate, response, { signal })
}

function askHaproxy(signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath: HAPROXY_METRICS_SOCKET, path: '/metrics', agent: false, signal }, answer => {
      if (answer.statusCode === 200) return resolve(answer)
      answer.destroy()
      reject(new Error(`HAProxy answered ${answer.statusCode}`))
    })
    outgoing.on('error', reject)
    outgoing.end()
  })
}

async function* translate(source: AsyncIterable<string>): AsyncGenerator<string> {
  let begun = ''
  for await (const piece of source) {
    const lines = (begun + piece).split('\n')
    begun = lines.pop() ?? ''
    const translated = lines.flatMap(line => translateMetric(line) ?? [])
    if (translated.length > 0) yield `${translated.join('\n')}\n`
  }
}

/** Octavia's two metrics that do not come from HAProxy. */
function describeUse({ cpu, memory }: MachineUse): string {
  const gauge = (name: string, text: string, percent: number) =>
    `# HELP ${name} ${text}\n# TYPE ${name} gauge\n${name} ${percent.toFixed(1)}\n`
  return (
    gauge('octavia_loadbalancer_cpu', 'Load balancer CPU utilization (percentage).', cpu) +
    gauge('octavia_loadbalancer_memory', 'Load balancer memory utilization (percentage).', memory)
  )
}
