import { createConnection } from 'node:net'

/**
 * Sends a request with exactly these lines, plus Host unless one is among them, and `Connection: close`.
 * @param url of the server
 * @param lines the request line and headers
 * @returns the whole answer as text
 */
export function requestAsWritten(url: string, lines: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url)
    const socket = createConnection({ host: hostname, port: Number(port) })
    let received = ''
    socket.setTimeout(10_000, () => socket.destroy(new Error('There was no answer')))
    socket.on('data', data => {
      received += String(data)
    })
    socket.on('end', () => resolve(received))
    socket.on('error', reject)
    const host = lines.some(line => /^host:/i.test(line)) ? [] : ['Host: x']
    socket.write([...lines, ...host, 'Connection: close', '', ''].join('\r\n'))
  })
}
