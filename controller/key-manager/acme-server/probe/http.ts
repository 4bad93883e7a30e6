import { type IncomingMessage, type RequestOptions, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { isIP } from 'node:net'
import { failed, type HttpJob, type ProbeResult } from './job.js'

/** More than any key authorization; an answer that is longer is not one. */
const MAX_BODY_BYTES = 4096
const MAX_HEADER_BYTES = 16_384

/** Sends one GET to one address. TLS, which only a redirect asks for, proves nothing here and is not verified. */
export function probeHttp({ address, port, tls, host, path }: HttpJob): Promise<ProbeResult> {
  const options: RequestOptions = {
    ...{ host: address, port, path, method: 'GET', agent: false, maxHeaderSize: MAX_HEADER_BYTES },
    headers: { Host: host, 'User-Agent': 'Krater ACME validation', Accept: '*/*', Connection: 'close' },
  }
  const name = host.replace(/:\d+$/, '')
  const serverName = isIP(name.replace(/^\[|\]$/g, '')) === 0 ? { servername: name } : {}
  return new Promise(resolve => {
    const request = tls ? requestHttps({ ...options, ...serverName, rejectUnauthorized: false }) : requestHttp(options)
    request.once('error', error => resolve(failed('connection', codeOf(error))))
    request.once('response', response => {
      readBody(response).then(
        body => {
          const location = response.headers.location ?? null
          resolve({ kind: 'http', status: response.statusCode ?? 0, location, body })
          request.destroy()
        },
        error => resolve(failed('answer', codeOf(error))),
      )
    })
    request.end()
  })
}

/** The beginning of a body. */
async function readBody(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    chunks.push(chunk)
    bytes += chunk.length
    if (bytes >= MAX_BODY_BYTES) break
  }
  return Buffer.concat(chunks).subarray(0, MAX_BODY_BYTES).toString('latin1')
}

/** The system's code of an error, or its text. */
export const codeOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return 'code' in error && typeof error.code === 'string' ? error.code : error.message
}
