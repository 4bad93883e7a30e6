import t from 'tap'
import { runFunctionalTests } from '../support/clients/castellan.js'
import { runSuite, suiteDirectory } from '../support/clients/stestr.js'
import { NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'

t.test('Castellan’s unit tests', async t => {
  await runSuite(t, suiteDirectory(t), { tests: 'castellan/tests/unit', passing: 238 }, {})
})

t.test('Castellan’s functional tests, out of the box, with an endpoint that ends in a slash', async t => {
  const krater = await startKrater(t, NOOP_DRIVERS)
  const why = 'its cleanup deletes both keys of a pair and never their container'
  const pairs = {
    'BarbicanKeyManagerKSPasswordTestCase.test_create_key_pair': why,
    'BarbicanKeyManagerKSTokenTestCase.test_create_key_pair': why,
  }
  const endpoint = `${(await krater.api()).urlOf('key-manager')}/`
  const results = await runFunctionalTests(t, krater, { failing: pairs }, endpoint)
  for (const { status, details } of results)
    if (status === 'fail') t.match(details, /Conflict: A container refers.*key_manager\.delete_referenced_secrets/)
})
