import type { Duplex } from 'node:stream'
import { connect, type DetailedPeerCertificate, type TLSSocket } from 'node:tls'
import { digestOf } from '../../../x509/material/digest.js'

/** What the other side showed, that it has no certificate for this client, or why nothing was seen. */
export type Seen = { digest: string } | { refusal: string } | { failure: string; isLate?: true }

/** A server without a certificate for the name, or with keys of other kinds only, sends one of these alerts. */
const REFUSED = /alert number (40|112)\b/

const SIGNATURES: Readonly<Record<string, string>> = {
  rsa: 'RSA-PSS+SHA256:RSA-PSS+SHA384:RSA-PSS+SHA512:RSA+SHA256:RSA+SHA384:RSA+SHA512:RSA+SHA1',
  ec: 'ECDSA+SHA256:ECDSA+SHA384:ECDSA+SHA512:ECDSA+SHA1',
}

/**
 * A handshake with whatever version and cipher the other side takes. Its certificates count once it has proven that it
 * has their key. Ends the stream.
 * @param keyType the kind of key that this client can verify
 */
export function shakeHands(
  stream: Duplex,
  { name, keyType }: { name: string | null; keyType: string },
  timeoutMs: number,
): Promise<Seen> {
  return new Promise(resolve => {
    const received: Buffer[] = []
    stream.on('data', (piece: Buffer) => received.push(piece))
    const signatures = SIGNATURES[keyType]
    const socket = connect({
      socket: stream,
      ...(name !== null && { servername: name }),
      ...(signatures !== undefined && { sigalgs: signatures }),
      // Only what the other side sends counts: no certificates of this machine complete its chain.
      ca: [],
      rejectUnauthorized: false,
      minVersion: 'TLSv1',
      ciphers: 'ALL:@SECLEVEL=0',
    })
    const finish = (seen: Seen) => {
      clearTimeout(limit)
      socket.destroy()
      stream.destroy()
      resolve(seen)
    }
    const late = () => finish({ failure: `no handshake within ${timeoutMs / 1000} s`, isLate: true })
    const limit = setTimeout(late, timeoutMs)
    socket.once('secureConnect', () => finish({ digest: digestOf(chainOf(socket)) }))
    socket.once('close', () => finish({ failure: 'the connection was closed' }))
    socket.once('error', (error: Error) => {
      // Before TLS 1.3, a server that requires a client's certificate ends the handshake after it has shown its own.
      const chain = certificatesIn(Buffer.concat(received))
      if (chain.length > 0) finish({ digest: digestOf(chain) })
      else finish(REFUSED.test(error.message) ? { refusal: error.message } : { failure: error.message })
    })
  })
}

/** The certificates that the other side sent, in their order. */
function chainOf(socket: TLSSocket): Buffer[] {
  const chain: Buffer[] = []
  let next: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true)
  while (next?.raw !== undefined && !chain.some(der => der.equals(next?.raw as Buffer))) {
    chain.push(next.raw)
    next = next.issuerCertificate
  }
  return chain
}

const HANDSHAKE = 22
const CERTIFICATE = 11

/** The certificates in what a server sends in the clear, up to TLS 1.2. */
export function certificatesIn(bytes: Buffer): Buffer[] {
  const messages: Buffer[] = []
  for (let at = 0; at + 5 <= bytes.length; ) {
    const length = bytes.readUInt16BE(at + 3)
    if (bytes[at] !== HANDSHAKE) break
    messages.push(bytes.subarray(at + 5, at + 5 + length))
    at += 5 + length
  }
  const flight = Buffer.concat(messages)
  for (let at = 0; at + 4 <= flight.length; ) {
    const length = flight.readUIntBE(at + 1, 3)
    if (flight[at] === CERTIFICATE) return listIn(flight.subarray(at + 4, at + 4 + length))
    at += 4 + length
  }
  return []
}

function listIn(message: Buffer): Buffer[] {
  const found: Buffer[] = []
  for (let at = 3; at + 3 <= message.length; ) {
    const length = message.readUIntBE(at, 3)
    if (length === 0 || at + 3 + length > message.length) break
    found.push(message.subarray(at + 3, at + 3 + length))
    at += 3 + length
  }
  return found
}
