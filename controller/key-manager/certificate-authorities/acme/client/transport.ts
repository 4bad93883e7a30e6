import { request } from 'node:https'
import { CaFault } from '../../ca-fault.js'

export type HttpAnswer = {
  status: number
  /** The last one if it was sent several times. */
  header: (name: string) => string | null
  links: readonly string[]
  body: Buffer
}

/** The server did not answer, or not in the way of HTTP. The message is for operators. */
export class Unreachable extends CaFault {}

const TIME_LIMIT_MS = 15_000
const MAX_BYTES = 1_048_576

export type HttpRequest = { method: 'GET' | 'HEAD' | 'POST'; url: string; json?: unknown }

/**
 * Sends one request over HTTPS. Follows no redirect. An answer has 15 s and 1 MiB.
 * @param ca PEM of the CAs to trust; undefined for those of Node.js
 * @throws Unreachable
 */
export function send(
  { method, url, json }: HttpRequest,
  ca: string | undefined,
  signal: AbortSignal,
): Promise<HttpAnswer> {
  if (!url.startsWith('https://')) return Promise.reject(new Unreachable(`${url} is not an https URL.`))
  const body = json === undefined ? undefined : JSON.stringify(json)
  const limit = AbortSignal.any([signal, AbortSignal.timeout(TIME_LIMIT_MS)])
  return new Promise((resolve, reject) => {
    const fail = (error: unknown) =>
      reject(new Unreachable(`${url}: ${error instanceof Error ? error.message : String(error)}`, { cause: error }))
    const headers = {
      'User-Agent': 'krater',
      ...(body !== undefined && { 'Content-Type': 'application/jose+json', 'Content-Length': Buffer.byteLength(body) }),
    }
    const sent = request(url, { method, headers, signal: limit, ...(ca !== undefined && { ca }) }, answer => {
      const chunks: Buffer[] = []
      let size = 0
      answer.on('data', (chunk: Buffer) => {
        size += chunk.length
        if (size > MAX_BYTES) sent.destroy(new Error(`the answer is longer than ${MAX_BYTES} bytes`))
        else chunks.push(chunk)
      })
      answer.on('error', fail)
      answer.on('end', () =>
        resolve({
          status: answer.statusCode ?? 0,
          header: name => [answer.headers[name] ?? []].flat().at(-1) ?? null,
          links: [answer.headers.link ?? []].flat(),
          body: Buffer.concat(chunks),
        }),
      )
    })
    sent.on('error', fail)
    sent.end(body)
  })
}
