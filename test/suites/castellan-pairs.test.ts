import t from 'tap'
import { runFunctionalTests } from '../support/clients/castellan.js'
import { NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'

t.test('Castellan’s functional tests with delete_referenced_secrets', async t => {
  const krater = await startKrater(t, { ...NOOP_DRIVERS, KRATER_KEY_MANAGER_DELETE_REFERENCED_SECRETS: 'true' })
  await runFunctionalTests(t, krater, { passing: 96 })
})
