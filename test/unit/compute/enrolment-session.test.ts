import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import ssh2, { type ServerChannel } from 'ssh2'
import t, { type Test } from 'tap'
import { HostSession } from '../../../controller/compute/enrolled/enrolment/session.js'
import { newSshKeyPair } from '../../support/inputs/ssh-keys.js'
import { ownPorts } from '../../support/ports.js'

const LIMIT_MS = 200
const LARGE = 8 * 1024 * 1024

/** A host that accepts every login, and treats commands as it is told. @param onExec null: it never answers */
async function createHost(t: Test, onExec: ((channel: ServerChannel) => void) | null) {
  const hostKey = newSshKeyPair()
  const parsed = ssh2.utils.parseKey(hostKey.public)
  if (parsed instanceof Error) throw parsed
  let ended: () => void = () => undefined
  const end = new Promise<void>(resolve => {
    ended = resolve
  })
  const server = new ssh2.Server({ hostKeys: [hostKey.private] }, client => {
    client.on('error', () => undefined)
    client.on('close', () => ended())
    client.on('authentication', context => context.accept())
    client.on('session', accept => {
      accept().on('exec', accepted => onExec?.(accepted()))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const identity = { privateKeys: [Buffer.from(newSshKeyPair().private)], agent: null }
  const session = await HostSession.open({ user: 'root', host: '127.0.0.1', port }, parsed.getPublicSSH(), identity)
  t.teardown(() => session.close())
  return { session, end }
}

t.test('a host whose sshd begins to listen a moment later is logged in to', async t => {
  const hostKey = newSshKeyPair()
  const parsed = ssh2.utils.parseKey(hostKey.public)
  if (parsed instanceof Error) throw parsed
  const [port = 0] = await ownPorts(1)
  const server = new ssh2.Server({ hostKeys: [hostKey.private] }, client => {
    client.on('error', () => undefined)
    client.on('authentication', context => context.accept())
  })
  t.teardown(() => server.close())
  const identity = { privateKeys: [Buffer.from(newSshKeyPair().private)], agent: null }
  const opening = HostSession.open({ user: 'root', host: '127.0.0.1', port }, parsed.getPublicSSH(), identity)
  const probe = connect(port, '127.0.0.1')
  const [error] = (await once(probe, 'error')) as [NodeJS.ErrnoException]
  t.equal(error.code, 'ECONNREFUSED', 'the first try was refused, too')
  server.listen(port, '127.0.0.1')
  const session = await opening
  session.close()
})

t.test('a host whose sshd ends connections for a moment is logged in to', async t => {
  const hostKey = newSshKeyPair()
  const parsed = ssh2.utils.parseKey(hostKey.public)
  if (parsed instanceof Error) throw parsed
  const sshd = new ssh2.Server({ hostKeys: [hostKey.private] }, client => {
    client.on('error', () => undefined)
    client.on('authentication', context => context.accept())
  })
  const ends: ((socket: Socket) => void)[] = [
    socket => socket.resetAndDestroy(),
    socket => socket.end(),
    socket => sshd.injectSocket(socket),
  ]
  const server = createServer(socket => ends.shift()?.(socket)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  const identity = { privateKeys: [Buffer.from(newSshKeyPair().private)], agent: null }
  const session = await HostSession.open({ user: 'root', host: '127.0.0.1', port }, parsed.getPublicSSH(), identity)
  session.close()
  t.same(ends, [])
})

const tooLate = { name: 'Error', message: 'A command on the host did not end within 0.2 s.' }

t.test('a command that ends says how', async t => {
  const { session } = await createHost(t, channel => {
    channel.resume()
    channel.write('done')
    channel.exit(3)
    channel.end()
  })
  t.match(await session.runScript('true', '', 10_000), { status: 3, stdout: 'done' })
})

t.test('a host that never answers a command is given up', async t => {
  const { session, end } = await createHost(t, null)
  await t.rejects(session.runScript('true', '', LIMIT_MS), tooLate)
  await end
})

t.test('a host that stops reading a file is given up', async t => {
  const { session, end } = await createHost(t, channel => channel.pause())
  const file = join(t.testdir(), 'large')
  writeFileSync(file, Buffer.alloc(LARGE))
  await t.rejects(session.upload(file, 'node', LIMIT_MS), tooLate)
  await end
})
