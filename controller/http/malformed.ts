import { randomUUID } from 'node:crypto'
import { maxHeaderSize } from 'node:http'
import type { Socket } from 'node:net'
import type { Logger } from '../log/log.js'
import { ApiError } from './errors.js'
import { type Fault, titleOf } from './fault.js'

/** What Node.js reports for a request that it cannot read. */
export type MalformedRequest = Error & { code?: string; reason?: string }

type Options = { name: string; log: Logger; presentFault: (fault: Fault, error: unknown) => unknown }

/**
 * Answers requests that never become one for the application, because they are not HTTP, too large or too slow.
 * Without this, Node.js answers them with an empty body.
 */
export function createMalformedAnswer({ name, log, presentFault }: Options) {
  return (malformed: MalformedRequest, socket: Socket): void => {
    const error = refusalOf(malformed)
    const { status, message } = error
    const requestId = `req-${randomUUID()}`
    const body = JSON.stringify(presentFault({ status, title: titleOf(status), message, requestId }, error))
    const lines = [
      `HTTP/1.1 ${status} ${titleOf(status)}`,
      'Content-Type: application/json; charset=utf-8',
      `Content-Length: ${Buffer.byteLength(body)}`,
      `x-openstack-request-id: ${requestId}`,
      'Connection: close',
    ]
    socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
    socket.destroySoon()
    log.info({ service: name, requestId, status, reason: message }, 'malformed request')
  }
}

function refusalOf({ code, reason }: MalformedRequest): ApiError {
  if (code === 'HPE_HEADER_OVERFLOW') {
    return new ApiError(431, `The request line and headers are larger than ${maxHeaderSize} bytes.`)
  }
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new ApiError(408, 'The request did not arrive in time.')
  if (code === 'ERR_SSL_HTTP_REQUEST') {
    return new ApiError(
      400,
      'This port speaks HTTPS, and the request is plain HTTP. Use a URL that begins with https://.',
    )
  }
  if (code === 'HPE_CHUNK_EXTENSIONS_OVERFLOW') return new ApiError(413, 'The chunk extensions are too large.')
  return new ApiError(400, `The request is not valid HTTP${reason === undefined ? '' : `: ${reason}`}.`)
}
