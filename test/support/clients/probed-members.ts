import { createSocket } from 'node:dgram'
import { createServer, type Server, type Socket } from 'node:net'
import { createInterface } from 'node:readline'

/**
 * Members in a network namespace, of both families. The port says how one answers. TCP port 7000 opens and closes as the
 * lines `open` and `close` on standard input say; nobody has the ports 5009 and 7009.
 */

const answers: Readonly<Record<number, (socket: Socket) => void>> = {
  8000: socket => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'),
  8001: socket => socket.end('HTTP/1.1 503 Service Unavailable\r\n\r\n'),
  8002: socket => socket.end('HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:8000/\r\n\r\n'),
  8003: socket => socket.end('HTTP/1.1 200'),
  8004: () => {},
  8005: flood,
  8006: socket => socket.once('data', () => socket.resetAndDestroy()),
}

const datagrams: Readonly<Record<number, (question: Buffer) => Buffer[]>> = {
  5000: question => (question.equals(Buffer.from('ping')) ? [Buffer.from('pong from here')] : []),
  5001: () => [Buffer.from('pang')],
  5002: () => [],
  5003: () => Array<Buffer>(50).fill(Buffer.alloc(60_000, 1)),
}

function flood(socket: Socket): void {
  const more = () => {
    while (socket.writable && socket.write('x'.repeat(65_536)));
  }
  socket.on('drain', more)
  more()
}

const listen = (port: number, answer: (socket: Socket) => void): Promise<Server> =>
  new Promise(resolve => {
    const server = createServer(socket => {
      socket.on('error', () => socket.destroy())
      socket.resume()
      answer(socket)
    })
    server.listen(port, '::', () => resolve(server))
  })

for (const [port, answer] of Object.entries(answers)) await listen(Number(port), answer)
for (const [port, answer] of Object.entries(datagrams)) {
  const socket = createSocket('udp6')
  socket.on('error', () => {})
  socket.on('message', (question, sender) => {
    for (const piece of answer(question)) socket.send(piece, sender.port, sender.address)
  })
  await new Promise<void>(resolve => socket.bind(Number(port), '::', resolve))
}
let toggled: Server | null = await listen(7000, () => {})
process.stdout.write('ready\n')
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'open') toggled = await listen(7000, () => {})
  else await new Promise(resolve => toggled?.close(resolve) ?? resolve(null))
  process.stdout.write(`${line}\n`)
}
