import { EventEmitter, once } from 'node:events'
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { createSupervisor } from '../../../controller/cli/commands/up/supervisor.js'

/** A child that is ready once its directory contains a file, and ends with its supervisor. */
const CHILD = `
  const { readdirSync, watch } = require('node:fs')
  const signs = process.argv[1]
  const look = () => readdirSync(signs).length > 0 && process.send('ready')
  watch(signs, look)
  process.on('disconnect', () => process.exit())
  look()`

function createScene(t: Test, program: string) {
  const stateDirectory = t.testdir({ log: {} })
  const signs = join(stateDirectory, 'signs')
  mkdirSync(signs)
  const lines: string[] = []
  const told = new EventEmitter()
  const supervisor = createSupervisor({
    stateDirectory,
    command: () => [process.execPath, '-e', program, signs],
    environment: process.env,
    report: line => {
      lines.push(line)
      told.emit('line')
    },
    reportIntervalMs: 50,
  })
  t.teardown(supervisor.stop)
  return { supervisor, lines, told, letIn: () => writeFileSync(join(signs, 'now'), '') }
}

t.test('the supervisor waits for a slow process and reports the wait', async t => {
  const { supervisor, lines, told, letIn } = createScene(t, CHILD)
  const started = supervisor.start('worker')
  for (let line = 0; line < 3; line++) await once(told, 'line')
  letIn()
  await started
  for (const line of lines) t.match(line, /^worker is not ready after \d+ s; still waiting\. Its log: .*worker\.log$/)
  const { length } = lines
  const other = supervisor.start('health-manager')
  await other
  t.same(
    lines.slice(length).filter(line => line.startsWith('worker')),
    [],
    'nothing more is reported once it is ready',
  )
})

t.test('the supervisor starts a few processes at a time, until all are ready', async t => {
  const { supervisor, letIn } = createScene(t, CHILD)
  const names = Array.from({ length: availableParallelism() + 5 }, (_, index) => `child-${index}` as 'worker')
  const opened = () => readdirSync(join(t.testdirName, 'log')).length
  const started = supervisor.startAll(names)
  t.equal(opened(), Math.max(4, availableParallelism()), 'the others wait')
  letIn()
  await started
  t.equal(opened(), names.length)
})

t.test('a process that keeps ending is given up, with its last log lines', async t => {
  const { supervisor, lines } = createScene(t, 'console.error("no such table"); process.exit(3)')
  await t.rejects(supervisor.start('worker'), { message: /^worker exited with status 3\. .*no such table/s })
  t.equal(lines.filter(line => line.startsWith('worker exited with status 3')).length, 3)
})

t.test('a stopped supervisor starts nothing more', async t => {
  const { supervisor } = createScene(t, CHILD)
  await supervisor.stop()
  void supervisor.start('worker')
  t.notOk(existsSync(join(t.testdirName, 'log/worker.log')), 'no process opened its log')
})

t.test('stopping a process before it is ready ends the wait without a message', async t => {
  const { supervisor, lines, told } = createScene(t, CHILD)
  void supervisor.start('worker')
  await once(told, 'line')
  await supervisor.stop()
  const { length } = lines
  await new Promise(setImmediate)
  t.equal(lines.length, length)
  t.same(
    lines.filter(line => line.startsWith('worker exited')),
    [],
  )
})
