import t from 'tap'
import { OCTAVIA, runTempest } from '../support/clients/tempest.js'
import { NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'

t.test('octavia-tempest-plugin’s tests, with Octavia’s roles and a provider that accepts everything', async t => {
  const suite = {
    tests: 'octavia_tempest_plugin/tests/api',
    // One algorithm stands for the others.
    select: 'UDP|udp|_RR_|test_(amphora|availability_zone|flavor|l7|listener|load_balancer|provider)\\w*\\.[A-Z]',
    skipped: { test_amphora: 'Amphora tests only run with the amphora provider enabled' },
    passing: 250,
  }
  const krater = await startKrater(t, { ...NOOP_DRIVERS, KRATER_LOAD_BALANCER_POLICY: 'legacy' })
  await runTempest(t, krater, suite, {
    ...OCTAVIA,
    load_balancer: { ...OCTAVIA.load_balancer, provider: 'noop_driver', RBAC_test_type: 'advanced' },
  })
})
