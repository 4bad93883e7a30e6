import { Resolver } from 'node:dns/promises'
import { type IncomingMessage, type RequestOptions, request as send } from 'node:http'
import { isIP } from 'node:net'
import { text } from 'node:stream/consumers'
import * as z from 'zod'
import { MAX_OCSP_RESPONSE_BYTES } from '../../x509/ocsp/response.js'
import { mayContact } from './addresses.js'

/** The first argument of the agent's program as a fetcher. */
export const FETCHER = 'fetch-ocsp-response'

const jobSchema = z.object({
  url: z.string(),
  /** DER in base64. */
  request: z.string(),
})

export type FetchJob = z.input<typeof jobSchema>

const LOOK_UP = { timeout: 2_000, tries: 2 }
const MAX_ADDRESSES = 3
const MAX_HEADER_BYTES = 16_384

/** Why there is no response, as a clause that quotes nothing of the answer. */
class Failed extends Error {}

/**
 * Whether this process is a fetcher; if so, it does its work. It gives up all rights before it reads what to ask, since
 * tenants choose who answers. Its parent ends it in time.
 * @param account of HAProxy, as `uid:gid`
 */
export function runFetcher([role, account = '']: readonly string[]): boolean {
  if (role !== FETCHER) return false
  const [uid, gid] = account.split(':').map(Number)
  dropRights(uid ?? 0, gid ?? 0)
  void text(process.stdin)
    .then(line => fetchResponse(jobSchema.parse(JSON.parse(line))))
    .then(
      response => ({ response: response.toString('base64') }),
      error => ({ failed: reasonOf(error) }),
    )
    .then(result => process.stdout.write(JSON.stringify(result), () => process.exit(0)))
  return true
}

function dropRights(uid: number, gid: number): void {
  if (!(uid > 0 && gid > 0)) throw new Error('the account has no rights to give up')
  process.setgroups?.([])
  process.setgid?.(gid)
  process.setuid?.(uid)
}

async function fetchResponse({ url, request }: FetchJob): Promise<Buffer> {
  const { hostname, port, pathname, search, host } = new URL(url)
  const addresses = await addressesOf(hostname.replace(/^\[|\]$/g, ''))
  const body = Buffer.from(request, 'base64')
  let failure: unknown = new Failed('its name has no address')
  for (const address of addresses.slice(0, MAX_ADDRESSES)) {
    try {
      return await post({ host: address, port: port || 80, path: pathname + search, headers: { Host: host } }, body)
    } catch (error) {
      failure = error
    }
  }
  throw failure
}

/** One address that must not be contacted refuses them all: an honest name has none. */
async function addressesOf(host: string): Promise<string[]> {
  const addresses = isIP(host) === 0 ? await lookUp(host) : [host]
  const forbidden = addresses.find(address => !mayContact(address))
  if (forbidden !== undefined) throw new Failed(`its address ${forbidden} is never contacted`)
  return addresses
}

/** Asks DNS servers only: the machine's own files name nothing that a tenant may reach. */
async function lookUp(name: string): Promise<string[]> {
  const resolver = new Resolver(LOOK_UP)
  const servers = resolver.getServers().filter(server => mayContact(server))
  if (servers.length === 0) throw new Failed('the amphora knows no name server')
  resolver.setServers(servers)
  const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
  const found = answers.flatMap(answer => (answer.status === 'fulfilled' ? answer.value : []))
  if (found.length === 0) throw new Failed('its name was not found')
  return found
}

function post(target: RequestOptions, body: Buffer): Promise<Buffer> {
  const headers = {
    ...(target.headers as Record<string, string>),
    'Content-Type': 'application/ocsp-request',
    'Content-Length': body.length,
    Accept: 'application/ocsp-response',
    Connection: 'close',
  }
  return new Promise((resolve, reject) => {
    const request = send({ ...target, headers, method: 'POST', agent: false, maxHeaderSize: MAX_HEADER_BYTES })
    request.once('error', reject)
    request.once('response', response => {
      readBody(response)
        .then(resolve, reject)
        .finally(() => request.destroy())
    })
    request.end(body)
  })
}

async function readBody(response: IncomingMessage): Promise<Buffer> {
  if (response.statusCode !== 200) throw new Failed(`it answers with status ${response.statusCode}`)
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes > MAX_OCSP_RESPONSE_BYTES) throw new Failed('its answer is too long')
  }
  return Buffer.concat(chunks)
}

function reasonOf(error: unknown): string {
  if (error instanceof Failed) return error.message
  const code = error instanceof Error && 'code' in error ? error.code : null
  return typeof code === 'string' ? `the connection failed (${code})` : 'it cannot be asked'
}
