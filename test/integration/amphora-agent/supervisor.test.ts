import { type ChildProcess, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import t, { type Test } from 'tap'
import { identityOf } from '../../../amphora-agent/process/process-table.js'
import { Supervisor } from '../../../amphora-agent/process/supervisor.js'
import { quiet } from '../../support/worlds/machines.js'

function createScene(t: Test) {
  const seconds = String(randomInt(1e8, 1e9))
  const children: ChildProcess[] = []
  const spawnOne = () => {
    const child = spawn('sleep', [seconds], { detached: true, stdio: 'ignore' })
    children.push(child)
    return child
  }
  let ends = 0
  const supervisor = new Supervisor({
    name: 'sleep',
    program: 'sleep',
    argument: seconds,
    spawn: spawnOne,
    onEnd: () => {
      ends += 1
    },
    log: quiet,
  })
  t.teardown(async () => {
    supervisor.close()
    for (const child of children) child.kill('SIGKILL')
  })
  return { supervisor, spawnOne, children, ends: () => ends }
}

t.test('what an earlier agent started is started again at once when it has just ended', async t => {
  const { supervisor, spawnOne, children, ends } = createScene(t)
  const earlier = spawnOne()
  t.equal(supervisor.adopt(), true)
  t.equal(supervisor.pid(), earlier.pid)
  earlier.kill('SIGKILL')
  await once(earlier, 'exit')
  t.equal(supervisor.pid(), null)
  supervisor.start()
  t.ok(supervisor.pid())
  t.equal(supervisor.pid(), children[1]?.pid)
  t.equal(ends(), 1, 'its end is told')
})

t.test('a program that ends by itself is started again, and fails only when it ends soon', async t => {
  const { supervisor, children } = createScene(t)
  supervisor.start()
  t.equal(supervisor.failures(), 0)
  const [first] = children
  // The supervisor does not wait for it at its own end, and neither would the test.
  first?.ref()
  first?.kill('SIGKILL')
  await once(first!, 'exit')
  t.equal(supervisor.failures(), 1)
  supervisor.start()
  t.equal(children.length, 2)
  await supervisor.stop()
  t.equal(supervisor.pid(), null)
})

t.test('a program that replaces another has not failed yet', async t => {
  const { supervisor, children } = createScene(t)
  supervisor.start()
  const [first] = children
  first?.ref()
  first?.kill('SIGKILL')
  await once(first!, 'exit')
  t.equal(supervisor.failures(), 1)
  supervisor.replace()
  t.equal(supervisor.failures(), 0)
  await supervisor.stop()
})

t.test('of several the youngest is adopted: an older one may still end its last connections', async t => {
  const { supervisor, spawnOne, children } = createScene(t)
  const older = identityOf(spawnOne().pid!)!
  // Two that start within one tick of the kernel's clock have the same age.
  while (identityOf(children.at(-1)?.pid ?? 0)?.startTime === older.startTime) spawnOne()
  t.equal(supervisor.adopt(), true)
  t.equal(supervisor.pid(), children.at(-1)?.pid)
})
