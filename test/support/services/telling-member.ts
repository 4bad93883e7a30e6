import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'

/** What a member received, as it reports it to the client. */
export type Told = {
  name: string
  /** The PROXY header received first: its version, and the client's address and port. */
  proxy: string | null
  /** First line and headers of a request (names in lower case), or the received text. */
  line: string
  headers: Record<string, string>
}

export type Behaviour = {
  /** Answers a text or request after this time; null is never. */
  answersAfterMs?: number | null
  /** Sent to every client that connects. */
  banner?: string
  /** More header lines of the answer to that request. */
  headers?: (told: Told) => string[]
}

/**
 * A server on 127.0.0.1 that reports what it received, in an HTTP response to HTTP requests, otherwise in a
 * line. It ends with the test.
 */
export async function startTellingMember(t: Test, name: string, behaviour: Behaviour = {}) {
  const { answersAfterMs = 0, banner = '', headers = () => [] } = behaviour
  const sockets = new Set<Socket>()
  const server = createServer(socket => {
    sockets.add(socket)
    let proxy: string | null = null
    let bytes: Buffer = Buffer.alloc(0)
    let isFirst = true
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => socket.destroy())
    if (banner !== '') socket.write(banner)
    socket.on('data', piece => {
      bytes = Buffer.concat([bytes, piece])
      if (isFirst) {
        const header = takeProxyHeader(bytes)
        proxy = header.proxy
        bytes = header.rest
        isFirst = bytes.length === 0 && proxy === null
      }
      const text = bytes.toString('latin1')
      const isHttp = / HTTP\/1\.[01]\r\n/.test(text)
      const end = isHttp ? text.indexOf('\r\n\r\n') : text.indexOf('\n')
      if (end === -1 || answersAfterMs === null) return
      bytes = bytes.subarray(end + (isHttp ? 4 : 1))
      const told = { name, proxy, ...headOf(text.slice(0, end)) }
      const answer = JSON.stringify(told)
      const head = ['HTTP/1.1 200 OK', `Content-Length: ${answer.length}`, ...headers(told)]
      const reply = isHttp ? `${head.join('\r\n')}\r\n\r\n${answer}` : `${answer}\n`
      const timer = setTimeout(() => socket.write(reply), answersAfterMs)
      socket.once('close', () => clearTimeout(timer))
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const end = () => {
    for (const socket of sockets) socket.destroy()
    return new Promise<void>(resolve => server.close(() => resolve()))
  }
  t.teardown(end)
  return { name, port: (server.address() as AddressInfo).port, end }
}

function headOf(text: string): Pick<Told, 'line' | 'headers'> {
  const [line = '', ...lines] = text.split('\r\n')
  const headers: Record<string, string> = {}
  for (const header of lines) {
    const colon = header.indexOf(':')
    const key = header.slice(0, colon).toLowerCase()
    const value = header.slice(colon + 1).trim()
    headers[key] = key in headers ? `${headers[key]}, ${value}` : value
  }
  return { line, headers }
}

const SIGNATURE = Buffer.from('0d0a0d0a000d0a515549540a', 'hex')

function takeProxyHeader(bytes: Buffer): { proxy: string | null; rest: Buffer } {
  const text = bytes.toString('latin1')
  if (text.startsWith('PROXY ')) {
    const end = text.indexOf('\r\n')
    const [, , source = '', , port = ''] = text.slice(0, end).split(' ')
    return { proxy: `v1 ${source}:${port}`, rest: bytes.subarray(end + 2) }
  }
  if (bytes.subarray(0, 12).equals(SIGNATURE)) {
    const length = bytes.readUInt16BE(14)
    const source = [...bytes.subarray(16, 20)].join('.')
    const isLocal = (bytes[12] ?? 0) === 0x20
    const proxy = isLocal ? 'v2 local' : `v2 ${source}:${bytes.readUInt16BE(24)}`
    return { proxy, rest: bytes.subarray(16 + length) }
  }
  return { proxy: null, rest: bytes }
}

/** Self-signed key and certificate for a server of the tests. */
export function selfSigned(): { key: string; cert: string } {
  const directory = mkdtempSync(join(tmpdir(), 'krater-certificate-'))
  try {
    const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')]
    const words = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2']
    execFileSync('openssl', [...words, '-subj', '/CN=member', '-keyout', key, '-out', cert], { stdio: 'pipe' })
    return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') }
  } finally {
    rmSync(directory, { recursive: true })
  }
}
