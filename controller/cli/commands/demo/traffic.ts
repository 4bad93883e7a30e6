import { Agent, type ClientRequest, get, type IncomingMessage } from 'node:http'
import { get as getOverTls, Agent as TlsAgent } from 'node:https'
import { setTimeout as delay } from 'node:timers/promises'

/** What a server's certificate must have: a name, and a CA (PEM). */
export type Expected = { name: string; ca: string }

export type Reply = { status: number; body: string; at: number }

/** Sends one request over a new connection. @returns null without a complete answer within a second */
export function ask(url: string, expected?: Expected): Promise<Reply | null> {
  return new Promise(resolve => {
    const request = open(url, expected, response => {
      let body = ''
      response.setEncoding('utf8')
      response.on('data', chunk => {
        body += chunk
      })
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: body.trim(), at: performance.now() }))
      response.on('error', () => resolve(null))
    })
    request.on('timeout', () => request.destroy(new Error('timeout')))
    request.on('error', () => resolve(null))
  })
}

/** Without keep-alive, so that the load balancer chooses a member each time. */
function open(
  url: string,
  expected: Expected | undefined,
  onResponse: (response: IncomingMessage) => void,
): ClientRequest {
  const timeout = 1_000
  if (expected === undefined) return get(url, { agent: new Agent({ keepAlive: false }), timeout }, onResponse)
  const { name, ca } = expected
  const agent = new TlsAgent({ keepAlive: false, maxCachedSessions: 0 })
  return getOverTls(url, { agent, timeout, ca, servername: name, headers: { Host: name } }, onResponse)
}

/** Repeats a request until it succeeds. @returns null without a 200 in time */
export async function firstSuccess(url: string, milliseconds: number, expected?: Expected): Promise<Reply | null> {
  const until = performance.now() + milliseconds
  while (performance.now() < until) {
    const reply = await ask(url, expected)
    if (reply?.status === 200) return reply
    await delay(20)
  }
  return null
}

/** Repeats a request until every named server has answered. @returns false when one did not answer in time */
export async function allAnswer(url: string, names: readonly string[], milliseconds: number): Promise<boolean> {
  const until = performance.now() + milliseconds
  const missing = new Set(names)
  while (missing.size > 0 && performance.now() < until) {
    const reply = await ask(url)
    if (reply?.status === 200) missing.delete(reply.body)
    else await delay(20)
  }
  return missing.size === 0
}

/**
 * Sends `count` requests one after another.
 * @returns how often each answer with status 200 came, and how often what else
 */
export async function countAnswers(
  url: string,
  count: number,
  expected?: Expected,
): Promise<{ answers: Map<string, number>; failures: Map<string, number> }> {
  const answers = new Map<string, number>()
  const failures = new Map<string, number>()
  const add = (counts: Map<string, number>, key: string) => counts.set(key, (counts.get(key) ?? 0) + 1)
  for (let sent = 0; sent < count; sent++) {
    const reply = await ask(url, expected)
    if (reply?.status === 200) add(answers, reply.body)
    else add(failures, reply === null ? 'no answer' : `status ${reply.status}`)
  }
  return { answers, failures }
}
