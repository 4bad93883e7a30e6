import t from 'tap'
import { judgeSilence, type Liveness, type Silence } from '../../../controller/health-manager/silence.js'
import { createLiveness, playSilences, RHYTHM } from '../../support/worlds/silence-stories.js'

t.test('a silence counts as one amphora’s own, as shared, or as unsure', async t => {
  const silent = createLiveness(0, { silentSeconds: 16 })
  const fleet = (fields: Partial<Liveness> = {}) => Array.from({ length: 9 }, (_, at) => createLiveness(at + 1, fields))
  const cases: [string, Silence, Liveness, Liveness[]][] = [
    ['not long enough', 'unsure', createLiveness(0, { silentSeconds: 15 }), fleet()],
    ['there is no other amphora', 'unsure', silent, []],
    ['all others send heartbeats', 'alone', silent, fleet()],
    ['all fell silent', 'together', silent, fleet({ silentSeconds: 14 })],
    ['all the others fell silent long before or after', 'unsure', silent, fleet({ silentSeconds: 60 })],
    ['all have only just returned', 'together', silent, fleet({ heardSinceSeconds: 2 })],
    [
      'two others fell silent with it',
      'together',
      silent,
      [...fleet(), ...[20, 21].map(at => createLiveness(at, { silentSeconds: 13 }))],
    ],
    [
      'another of its project fell silent with it',
      'together',
      silent,
      [...fleet(), createLiveness(20, { projectId: 'p0', silentSeconds: 13 })],
    ],
    [
      'its peer fell silent with it',
      'alone',
      silent,
      [...fleet(), createLiveness(20, { loadBalancerId: 'lb0', silentSeconds: 13 })],
    ],
    [
      'ten of one other project fell silent with it',
      'alone',
      silent,
      [
        ...fleet(),
        ...Array.from({ length: 10 }, (_, at) => createLiveness(20 + at, { projectId: 'hostile', silentSeconds: 16 })),
      ],
    ],
  ]
  for (const [name, expected, one, others] of cases)
    t.equal(judgeSilence(one, [one, ...others], RHYTHM), expected, name)
})

t.test('a network outage is never mistaken for dead amphorae, and every dead one is found', async t => {
  // integration/health-manager/silence-stories.test.ts plays more.
  t.doesNotThrow(() => playSilences(1000))
})
