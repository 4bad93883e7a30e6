import { join } from 'node:path'
import t from 'tap'
import { firstProcessOf } from '../../support/worlds/machines.js'
import { runCases } from './cases.js'

t.test('a load balancer in a namespace', t =>
  runCases(t, {
    settings: { KRATER_COMPUTE_DRIVER: 'namespace' },
    powerFails: async ({ krater }, { id }) => {
      process.kill(firstProcessOf(join(krater.directory, 'amphorae', id)), 'SIGKILL')
    },
    cannot: {
      'serves again after its machine was restarted': 'it has no kernel of its own, and nothing in it restarts it',
    },
  }),
)
