import t from 'tap'
import { BARBICAN, runTempest } from '../support/clients/tempest.js'
import { NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'

const COMPUTE = 'Neutron not available'

t.test('barbican-tempest-plugin’s tests of the API', async t => {
  const suite = {
    tests: 'barbican_tempest_plugin/tests',
    select: 'tests\\.(api|scenario)\\.',
    // They boot instances from encrypted volumes and signed images.
    skipped: {
      'scenario.test_certificate_validation': COMPUTE,
      'scenario.test_ephemeral_disk_encryption': COMPUTE,
      'scenario.test_image_signing.ImageSigningTest': COMPUTE,
      'scenario.test_image_signing.ImageSigningSnapshotTest': 'Nova is not available',
      'scenario.test_volume_encryption': COMPUTE,
    },
    passing: 13,
  }
  await runTempest(t, await startKrater(t, NOOP_DRIVERS), suite, BARBICAN)
})
