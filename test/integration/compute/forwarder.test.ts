import { type ChildProcess, spawn } from 'node:child_process'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
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
function startForwarder(t: Test, lines: readonly string[]): { forwarder: ChildProcess; said: () => string } {
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
  return { forwarder, said: () => said }
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
