import { execFile, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import t from 'tap'
import { aListener, aPool, uuid } from '../../golden/models.js'
import { aLocalMember, ask, serveOptions } from '../../support/clients/options-traffic.js'
import { startTellingMember } from '../../support/services/telling-member.js'

const script = join(dirname(dirname(dirname(fileURLToPath(import.meta.url)))), 'support/services/grpc-conversation.py')
/** Shorter than the silences of this file's conversations, and longer. */
const SHORT = { timeoutClientData: 400, timeoutMemberData: 400 }
const LONG = { timeoutClientData: 20_000, timeoutMemberData: 20_000 }
const SILENCE_MS = 1_200

const grpc = spawn('/usr/bin/python3', [script, 'serve'], { stdio: ['pipe', 'pipe', 'inherit'] })
t.teardown(async () => {
  grpc.kill('SIGKILL')
  await once(grpc, 'close')
})
const [grpcPort] = await once(createInterface({ input: grpc.stdout }), 'line')
const late = await startTellingMember(t, 'late', { answersAfterMs: SILENCE_MS })
const webSocket = await startWebSocketMember()

const POOL = { grpc: uuid(3, 1), late: uuid(3, 2), webSocket: uuid(3, 3), webSocketByTcp: uuid(3, 4) }
const tcp = (defaultPoolId: string) => ({ protocol: 'TCP', defaultPoolId }) as const
const { port } = await serveOptions(t, {
  pools: [
    aPool(1, { protocol: 'TCP', members: [aLocalMember(1, Number(grpcPort))] }),
    aPool(2, { members: [aLocalMember(2, late.port)] }),
    aPool(3, { members: [aLocalMember(3, webSocket)] }),
    aPool(4, { protocol: 'TCP', members: [aLocalMember(4, webSocket)] }),
  ],
  listeners: [
    aListener(1, { ...tcp(POOL.grpc), ...LONG }),
    aListener(2, { ...tcp(POOL.grpc), ...SHORT }),
    aListener(3, { defaultPoolId: POOL.late, ...LONG }),
    aListener(4, { defaultPoolId: POOL.late, ...SHORT }),
    aListener(5, { defaultPoolId: POOL.webSocket, ...SHORT }),
    aListener(6, { ...tcp(POOL.webSocketByTcp), ...LONG }),
    aListener(7, { ...tcp(POOL.webSocketByTcp), ...SHORT }),
  ],
})

/** Asks the gRPC server through a listener: one message, many, both ways, and one after a silence. */
async function askGrpc(listener: number): Promise<Record<string, unknown>> {
  const words = [script, 'ask', String(port(listener)), String(SILENCE_MS)]
  return JSON.parse((await promisify(execFile)('/usr/bin/python3', words, { timeout: 60_000 })).stdout)
}

t.test('gRPC passes through a TCP listener', async t => {
  const answered = { unary: 'HELLO', large: 1_000_000, stream: 1_000, both: ['A', 'B'] }
  t.strictSame(await askGrpc(1), { ...answered, late: ['0', '1'] })
  t.strictSame(await askGrpc(2), { ...answered, late: 'UNAVAILABLE' }, 'a stream that is silent longer than timeouts')
})

t.test('long polling waits as long as timeout_member_data', async t => {
  t.match(await ask(port(3)), { status: 200, told: { name: 'late' } })
  t.match(await ask(port(4)), { status: 504 })
})

t.test('a WebSocket behind an HTTP listener outlasts timeouts of data', async t => {
  t.equal(await hearWebSocket(port(5)), 'after a silence')
})

t.test('a WebSocket behind a TCP listener lives as long as its timeouts of data', async t => {
  t.equal(await hearWebSocket(port(6)), 'after a silence')
  t.equal(await hearWebSocket(port(7)), 'closed')
})

/** Accepts every WebSocket, and sends one message after a silence. @returns its port */
async function startWebSocketMember(): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer().on('upgrade', ({ headers }, socket) => {
    sockets.add(socket as Socket)
    const key = `${headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`
    const accepted = createHash('sha1').update(key).digest('base64')
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accepted}\r\n\r\n`,
    )
    const text = Buffer.from('after a silence')
    const timer = setTimeout(() => socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text])), SILENCE_MS)
    socket.on('close', () => clearTimeout(timer)).on('error', () => socket.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    return new Promise(resolve => server.close(resolve))
  })
  return (server.address() as AddressInfo).port
}

/** @returns the first message of a WebSocket, or `closed` */
async function hearWebSocket(port: number): Promise<string> {
  const headers = {
    connection: 'Upgrade',
    upgrade: 'websocket',
    'sec-websocket-key': randomBytes(16).toString('base64'),
    'sec-websocket-version': '13',
  }
  const outgoing = request({ host: '127.0.0.1', port, headers, agent: false }).end()
  const [, socket, head] = (await once(outgoing, 'upgrade')) as [unknown, Socket, Buffer]
  if (head.length > 0) socket.unshift(head)
  const first = await Promise.race([
    once(socket, 'data').then(([frame]) => (frame as Buffer).subarray(2).toString()),
    once(socket, 'end').then(() => 'closed'),
  ])
  socket.destroy()
  return first
}
