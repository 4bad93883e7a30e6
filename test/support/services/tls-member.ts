import { createSecureServer, type Http2ServerRequest } from 'node:http2'
import type { AddressInfo } from 'node:net'
import type { TLSSocket } from 'node:tls'
import type { Test } from 'tap'
import type { Pair } from '../inputs/certificates.js'

/** What a member knows of the connection by which a request came. */
export type Negotiated = {
  name: string
  /** What the other side asked for by SNI; null for nothing. */
  sni: string | null
  version: string | null
  cipher: string
  /** HTTP's version. */
  http: string
  /** Common name of the other side's certificate; null without one. */
  client: string | null
}

export type TlsMember = { name: string; port: number; paths: () => string[] }

/**
 * A server on 127.0.0.1 that speaks HTTP/1.1 and HTTP/2 over TLS, and tells what was negotiated. It ends with the test.
 * @param authority PEM of the CA whose certificates it asks for
 */
export async function startTlsMember(t: Test, name: string, pair: Pair, authority?: string): Promise<TlsMember> {
  const paths: string[] = []
  const server = createSecureServer(
    {
      ...{ cert: pair.certificate, key: pair.privateKey, allowHTTP1: true },
      ...(authority !== undefined && { ca: authority, requestCert: true, rejectUnauthorized: true }),
    },
    (request, response) => {
      paths.push(request.url)
      response.end(JSON.stringify({ name, ...negotiatedOf(request) }))
    },
  )
  const sockets = new Set<TLSSocket>()
  server.on('secureConnection', socket => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    socket.on('error', () => socket.destroy())
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    return new Promise(resolve => server.close(resolve))
  })
  return { name, port: (server.address() as AddressInfo).port, paths: () => paths }
}

function negotiatedOf({ httpVersion, stream, socket }: Http2ServerRequest): Omit<Negotiated, 'name'> {
  // Over HTTP/2, what the request has is a proxy of the socket.
  const tls = (stream?.session?.socket ?? socket) as TLSSocket & { servername?: string | false }
  const { subject } = tls.getPeerCertificate()
  return {
    sni: tls.servername || null,
    version: tls.getProtocol(),
    cipher: tls.getCipher().name,
    http: httpVersion,
    client: subject === undefined ? null : String(subject.CN),
  }
}
