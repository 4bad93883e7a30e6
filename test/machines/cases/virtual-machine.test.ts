import { join } from 'node:path'
import t from 'tap'
import { firstProcessOf } from '../../support/worlds/machines.js'
import { runCases } from './cases.js'

t.test('a load balancer in a virtual machine', t =>
  runCases(t, {
    settings: { KRATER_COMPUTE_DRIVER: 'qemu', KRATER_COMPUTE_ACCELERATION: 'tcg' },
    prepare:
      async t =>
      async ({ krater }) => {
        const { status, stderr } = await krater.command(
          'image',
          'import',
          join(import.meta.dirname, '../../../images/out'),
        )
        t.equal(status, 0, stderr)
      },
    powerFails: async ({ krater }, { id }) => {
      process.kill(firstProcessOf(join(krater.directory, 'machines', id)), 'SIGKILL')
    },
    reboots: async ({ krater }, { id }) => {
      await krater.command('amphora', 'ssh', id, 'reboot')
    },
  }),
)
