import { spawnSync } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'

type Work = (stop: AbortSignal) => Promise<unknown>
type Beside = (signal: AbortSignal, works: readonly Work[]) => Promise<void>

const script = join(import.meta.dirname, '../../../scripts/progress.js')
const { beside }: { beside: Beside } = await import(script)

/** Works until it is stopped, and takes some time for that. */
const stubborn =
  (ended: string[]): Work =>
  async stop => {
    await pause(60_000, null, { signal: stop }).catch(() => pause(50))
    ended.push('stubborn')
    throw new Error('stopped')
  }

t.test('works run beside each other, and the first failure stops the others', async t => {
  const { signal } = new AbortController()
  const ended: string[] = []
  const second = new EventEmitter()
  await beside(signal, [() => once(second, 'begins'), async () => second.emit('begins')])
  const fails: Work = async () => {
    throw new Error('first')
  }
  await t.rejects(beside(signal, [stubborn(ended), fails]), { message: 'first' })
  t.strictSame(ended, ['stubborn'], 'it waits for all')
})

t.test('an interruption stops all', async t => {
  const controller = new AbortController()
  const ended: string[] = []
  const all = beside(controller.signal, [stubborn(ended), stubborn(ended)])
  controller.abort()
  await t.rejects(all, { message: 'stopped' })
  t.strictSame(ended, ['stubborn', 'stubborn'])
})

/** What steps print: two beside each other, of which one ends, says something and stops the other. */
const STEPS = (terminal: boolean) => `
process.stdout.isTTY = ${terminal}
process.stdout.columns = 40
const { beside, say, step } = await import(${JSON.stringify(script)})
const until = signal => new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('end'))))
await beside(new AbortController().signal, [
  signal => step('one', report => { report('a detail that is much too long for it'); return until(signal) }, signal),
  signal => step('two', async () => { say('a line'); throw new Error('end') }, signal),
]).catch(() => undefined)
`

const printedBy = (terminal: boolean) =>
  spawnSync(process.execPath, ['--input-type=module', '--eval', STEPS(terminal)], { encoding: 'utf8' }).stdout.replace(
    / +\d+\.\d s {2}/g,
    '',
  )

t.test('steps that run beside each other are told apart, and a stopped one from a failed one', async t => {
  const lines = ['one ...', 'two ...', 'a line', 'two: failed after 0 s', 'one: stopped after 0 s', '']
  t.equal(printedBy(false), lines.join('\n'))
})

t.test('on a terminal each step has a line, below the lines that stay', async t => {
  const screen: string[] = []
  for (const line of printedBy(true).split('\n')) {
    // Up some lines, and clear what is below.
    const [text, up, cleared] = line.split('\u001b[')
    if (up !== undefined) screen.splice(screen.length - Number.parseInt(up, 10))
    screen.push(cleared?.slice(1) ?? text ?? '')
  }
  t.strictSame(screen, ['a line', 'two: failed after 0 s', 'one: stopped after 0 s', ''])
})
