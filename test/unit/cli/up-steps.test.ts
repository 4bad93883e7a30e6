import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { createSteps } from '../../../controller/cli/commands/up/steps.js'

t.test('a start says again and again which step is under way, until it is done', async t => {
  const said: string[] = []
  let heard = () => {}
  const steps = createSteps(line => {
    said.push(line)
    heard()
  }, 5)
  const more = () =>
    new Promise<void>(resolve => {
      heard = resolve
    })
  steps.begin('Starting PostgreSQL')
  await more()
  await more()
  t.strictSame(said, ['Starting PostgreSQL', ...Array(2).fill('Starting PostgreSQL: 0 s so far')])
  steps.begin('Updating the tables')
  await more()
  t.strictSame(said.slice(3), ['Updating the tables', 'Updating the tables: 0 s so far'])
  steps.end()
  await delay(20)
  t.equal(said.length, 5, 'nothing is said of a step that is done')
})
