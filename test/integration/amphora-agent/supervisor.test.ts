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

t.test('a program adopted from an earlier agent restarts at once when it ends', async t => {
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
  t.equal(ends(), 1, 'its end is reported once')
})

t.test('a program that ends soon after its start counts as a failure', async t => {
  const { supervisor, children } = createScene(t)
  supervisor.start()
  t.equal(supervisor.failures(), 0)
  const [first] = children
  // The supervisor unrefs its children; without a ref the test would end first.
  first?.ref()
  first?.kill('SIGKILL')
  await once(first!, 'exit')
  t.equal(supervisor.failures(), 1)
  supervisor.start()
  t.equal(children.length, 2)
  await supervisor.stop()
  t.equal(supervisor.pid(), null)
})

t.test('replacing a program resets its failures', async t => {
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

t.test('the youngest of several processes is adopted; older ones may still finish connections', async t => {
  const { supervisor, spawnOne, children } = createScene(t)
  const older = identityOf(spawnOne().pid!)!
  // Processes started within one kernel clock tick have the same age.
  while (identityOf(children.at(-1)?.pid ?? 0)?.startTime === older.startTime) spawnOne()
  t.equal(supervisor.adopt(), true)
  t.equal(supervisor.pid(), children.at(-1)?.pid)
})
