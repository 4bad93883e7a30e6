import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { makePair, opensslBytes } from '../inputs/certificates.js'
import { fileOf } from '../inputs/x509.js'

type Answer = { status: number; json?: unknown; text?: string; headers?: Record<string, string> }

/** A request as the fake understood it: the name of what was asked for, and the payload. */
export type Asked = { what: string; payload: Record<string, unknown>; id: string }

export type FaultyAcme = {
  directoryUrl: string
  caFile: string
  /** Every request so far, in order. */
  asked: Asked[]
  /** Answers instead of the server, once for each entry. Null lets the request pass. */
  faults: ((asked: Asked) => Answer | 'hang' | null)[]
  /** The next answers for renewal information; null for a directory without any. */
  renewalInfo: { start: Date; end: Date; retryAfter: number } | null
  /** Whether orders are authorized at once. */
  authorizes: boolean
  /** Life of what it issues. */
  days: number
}

/** The answer for a problem of RFC 8555. */
export const problem = (kind: string, status = 400, headers: Record<string, string> = {}): Answer => ({
  status,
  json: { type: `urn:ietf:params:acme:error:${kind}`, detail: `This is ${kind}.` },
  headers,
})

type Order = { names: string[]; csr: string | null; pem: string | null }

/**
 * An ACME server that believes every signature and validates nothing, for what pebble cannot do: faults, rate limits and
 * renewal information. It ends with the test.
 */
export async function startFaultyAcme(t: Test): Promise<FaultyAcme> {
  const ca = makePair({ subject: '/CN=Faulty CA' })
  const own = makePair({ subject: '/CN=localhost', issuer: ca, args: ['-addext', 'subjectAltName=IP:127.0.0.1'] })
  const orders = new Map<string, Order>()
  const server = createServer({ cert: own.certificate, key: own.privateKey })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const base = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  const fake: FaultyAcme = {
    ...{ directoryUrl: `${base}/dir`, caFile: fileOf(ca.certificate), asked: [], faults: [] },
    ...{ renewalInfo: null, authorizes: true, days: 90 },
  }

  const orderJson = (id: string): unknown => {
    const order = orders.get(id)
    const status = order?.pem ? 'valid' : fake.authorizes ? 'ready' : 'pending'
    const certificate = order?.pem ? { certificate: `${base}/certificate/${id}` } : {}
    return {
      status,
      authorizations: [`${base}/authorization/${id}`],
      finalize: `${base}/finalize/${id}`,
      ...certificate,
    }
  }

  const answer = ({ what, payload, id }: Asked): Answer => {
    switch (what) {
      case 'dir': {
        const names = ['newNonce', 'newAccount', 'newOrder', ...(fake.renewalInfo === null ? [] : ['renewalInfo'])]
        return { status: 200, json: Object.fromEntries(names.map(name => [name, `${base}/${name}`])) }
      }
      case 'newNonce':
        return { status: 200 }
      case 'newAccount':
        return { status: 201, json: {}, headers: { Location: `${base}/account/1` } }
      case 'newOrder': {
        const made = randomBytes(4).toString('hex')
        const identifiers = payload.identifiers as { value: string }[]
        orders.set(made, { names: identifiers.map(({ value }) => value), csr: null, pem: null })
        return { status: 201, json: orderJson(made), headers: { Location: `${base}/order/${made}` } }
      }
      case 'authorization': {
        const challenge = { type: 'http-01', url: `${base}/challenge/${id}`, status: 'pending', token: `token-${id}` }
        const value = orders.get(id)?.names[0] ?? ''
        return { status: 200, json: { status: 'pending', identifier: { type: 'dns', value }, challenges: [challenge] } }
      }
      case 'challenge':
        fake.authorizes = true
        return { status: 200, json: {} }
      case 'finalize': {
        const order = orders.get(id)
        if (order !== undefined) order.pem = signed(ca, String(payload.csr), fake.days)
        return { status: 200, json: orderJson(id) }
      }
      case 'certificate':
        return { status: 200, text: orders.get(id)?.pem ?? '' }
      case 'renewalInfo': {
        const { start, end, retryAfter } = fake.renewalInfo ?? { start: new Date(), end: new Date(), retryAfter: 0 }
        return {
          status: 200,
          json: { suggestedWindow: { start, end } },
          headers: { 'Retry-After': String(retryAfter) },
        }
      }
      default:
        return orders.has(id) ? { status: 200, json: orderJson(id) } : problem('malformed', 404)
    }
  }

  const handle = async (request: IncomingMessage, response: ServerResponse) => {
    const [, what = '', id = ''] = (request.url ?? '').split('/')
    const asked = { what, id, payload: await payloadOf(request) }
    fake.asked.push(asked)
    const fault = fake.faults.length > 0 ? (fake.faults[0]?.(asked) ?? null) : null
    if (fault !== null) fake.faults.shift()
    if (fault === 'hang') return
    const { status, json, text, headers = {} } = fault ?? answer(asked)
    response.writeHead(status, { 'Replay-Nonce': createHash('md5').update(randomBytes(8)).digest('hex'), ...headers })
    response.end(text ?? (json === undefined ? undefined : JSON.stringify(json)))
  }
  server.on('request', (request, response) => void handle(request, response))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return fake
}

async function payloadOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = ''
  for await (const chunk of request) text += chunk
  const payload = text === '' ? '' : String(JSON.parse(text).payload)
  return payload === '' ? {} : JSON.parse(Buffer.from(payload, 'base64url').toString())
}

/** PEM of a certificate with the names of the request, and of its CA. */
function signed(ca: { certificate: string; privateKey: string }, csr: string, days: number): string {
  const request = fileOf(Buffer.from(csr, 'base64url'))
  const certificate = opensslBytes(
    ...[
      'x509',
      '-req',
      '-inform',
      'DER',
      '-in',
      request,
      '-CA',
      fileOf(ca.certificate),
      '-CAkey',
      fileOf(ca.privateKey),
    ],
    ...['-days', String(days), '-copy_extensions', 'copyall', '-extfile', fileOf('authorityKeyIdentifier=keyid\n')],
  )
  return certificate.toString() + ca.certificate
}
