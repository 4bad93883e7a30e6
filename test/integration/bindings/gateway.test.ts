import { request } from 'node:http'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import t from 'tap'
import { startGateway } from '../../../controller/bindings/gateway.js'
import { createLog } from '../../../controller/log/log.js'
import { eventually } from '../../support/eventually.js'
import { ownPorts } from '../../support/ports.js'

/** What amphorae reach through the gateway to a key manager, and how much of it one of them can take. */

const service = createServer(socket => socket.on('error', () => socket.destroy()).pipe(socket))
await new Promise<void>(resolve => service.listen(0, '127.0.0.1', resolve))
t.teardown(() => service.close())
const target = `127.0.0.1:${(service.address() as AddressInfo).port}`
const [port = 0] = await ownPorts(1)
const gateway = await startGateway({
  host: '127.0.0.1',
  port,
  services: [`http://${target}`],
  log: createLog('test', 'silent'),
})
t.teardown(gateway.stop)

/** @returns the status of a CONNECT, and the connection if it succeeds */
function through(path: string, localAddress = '127.0.0.1') {
  return new Promise<{ status: number | undefined; socket: Socket }>((resolve, reject) => {
    const asked = request({ host: '127.0.0.1', port, localAddress, method: 'CONNECT', path, agent: false })
    asked.once('connect', ({ statusCode: status }, socket) => {
      socket.on('error', () => socket.destroy())
      t.teardown(() => socket.destroy())
      resolve({ status, socket })
    })
    asked.once('error', reject)
    asked.end()
  })
}

t.test('leads to the services and nowhere else', async t => {
  await eventually('it listens', () => through(target).catch(() => null))
  const { status, socket } = await through(target)
  t.equal(status, 200)
  socket.write('hello')
  t.equal(String(await new Promise(resolve => socket.once('data', resolve))), 'hello')
  for (const path of ['127.0.0.1:1', 'example.com:443', target.replace('127.0.0.1', 'localhost')])
    t.equal((await through(path)).status, 403, path)
})

t.test('an amphora that opens many connections takes none from the others', async t => {
  const idle = Array.from({ length: 100 }, () => connect({ host: '127.0.0.1', port, localAddress: '127.0.0.2' }))
  const left = () => idle.filter(({ destroyed }) => !destroyed).length
  for (const socket of idle) {
    socket.on('error', () => socket.destroy()).on('close', () => socket.destroy())
    t.teardown(() => socket.destroy())
  }
  await eventually('most are closed', () => left() <= 16, 4_000)
  const others = await Promise.all(Array.from({ length: 8 }, () => through(target)))
  t.ok(others.every(({ status }) => status === 200))
  t.equal((await through(target, '127.0.0.2')).status, 200, 'even its own next one')
})
