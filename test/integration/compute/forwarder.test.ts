import { spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { renameSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { sourceFolder } from '../../../controller/compute/source-folder.js'
import { eventually } from '../../support/eventually.js'
import { ownPorts } from '../../support/ports.js'

/** Where the forwarder listens, in place of the host's end of the link to its amphora. */
const HERE = '127.77.0.1'
/** Where controllers listen. */
const CONTROLLER = '127.77.0.2'

/** Starts a forwarder for these lines of its file. */
function startForwarder(t: Test, lines: readonly string[]): { file: string; said: () => string } {
  const file = join(t.testdir(), 'controllers')
  writeFileSync(file, lines.map(line => `${line}\n`).join(''))
  const program = join(sourceFolder('controller/compute/enrolled/host'), 'forward.pl')
  const forwarder = spawn('perl', [program, HERE, file], { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  forwarder.stderr.setEncoding('utf8').on('data', (piece: string) => {
    said += piece
  })
  t.teardown(async () => {
    forwarder.kill()
    if (forwarder.exitCode === null) await once(forwarder, 'close')
  })
  return { file, said: () => said }
}

t.test('it says once what it cannot listen on, and passes on the rest', async t => {
  const [taken = 0, heartbeats = 0] = await ownPorts(2)
  const other = createServer().listen(taken, '0.0.0.0')
  const manager = createSocket('udp4').bind(0, CONTROLLER)
  const amphora = createSocket('udp4')
  t.teardown(() => {
    other.close()
    manager.close()
    amphora.close()
  })
  await Promise.all([once(other, 'listening'), once(manager, 'listening')])
  const { said } = startForwarder(t, [
    `tcp ${taken} ${CONTROLLER} ${taken}`,
    `udp ${heartbeats} ${CONTROLLER} ${manager.address().port}`,
  ])
  const sentence = `cannot listen on ${HERE} tcp port ${taken}: Address already in use\n`
  await eventually('it says so', () => said() === sentence)
  // It tries again before it passes on each.
  for (const beat of ['first', 'second', 'third']) {
    amphora.send(beat, heartbeats, HERE)
    const [heard] = (await once(manager, 'message')) as [Buffer]
    t.equal(heard.toString(), beat)
  }
  t.equal(said(), sentence)
})

t.test('it follows a list that replaces another of the same second and the same length', async t => {
  const [port = 0] = await ownPorts(1)
  const lineTo = (host: string) => `udp ${port} ${host} ${port}`
  const managers = ['127.77.0.2', '127.77.0.3'].map(host => {
    const heard: string[] = []
    const socket = createSocket('udp4').bind(port, host)
    socket.on('message', beat => heard.push(beat.toString()))
    return { host, socket, heard }
  })
  const amphora = createSocket('udp4')
  t.teardown(() => [amphora, ...managers.map(({ socket }) => socket)].map(socket => socket.close()))
  await Promise.all(managers.map(({ socket }) => once(socket, 'listening')))
  const [former, latter] = managers
  const { file } = startForwarder(t, [lineTo(former!.host)])
  const isHeardBy = (manager: typeof former, beat: string) =>
    eventually(`${beat} arrives`, () => {
      amphora.send(beat, port, HERE)
      return manager!.heard.includes(beat)
    })
  await isHeardBy(former, 'first')
  const { atime, mtime } = statSync(file)
  writeFileSync(`${file}.new`, `${lineTo(latter!.host)}\n`)
  utimesSync(`${file}.new`, atime, mtime)
  renameSync(`${file}.new`, file)
  await isHeardBy(latter, 'second')
})

t.test('a connection goes to the first controller that accepts it, and the next ones begin there', async t => {
  const [port = 0, refused = 0] = await ownPorts(2)
  const channel = createServer(socket => socket.on('data', piece => socket.write(`heard ${piece}`))).listen(
    0,
    CONTROLLER,
  )
  t.teardown(() => channel.close())
  await once(channel, 'listening')
  const { port: there } = channel.address() as AddressInfo
  startForwarder(t, [`tcp ${port} 127.77.0.3 ${refused}`, `tcp ${port} ${CONTROLLER} ${there}`])
  const ask = async (words: string): Promise<string> => {
    const socket = connect(port, HERE)
    try {
      socket.write(words)
      const [answer] = (await once(socket, 'data')) as [Buffer]
      return answer.toString()
    } finally {
      socket.destroy()
    }
  }
  t.equal(await eventually('it listens', () => ask('one').catch(() => null)), 'heard one')
  const late = createServer(socket => socket.end('late')).listen(refused, '127.77.0.3')
  t.teardown(() => late.close())
  await once(late, 'listening')
  t.equal(await ask('two'), 'heard two', 'the first is not asked again')
  channel.close()
  t.equal(await ask('three'), 'late', 'until the other one is gone')
})
