import fc from 'fast-check'
import t from 'tap'
import { CHECK_STATUSES, checkWords, type FailedCheck } from '../../../../amphora-agent/protocol/checks.js'
import type { MemberState } from '../../../../amphora-agent/protocol/heartbeat.js'
import { assess, type Stored, type StoredMember } from '../../../../controller/health-manager/operating/assess.js'
import {
  type AmphoraHealth,
  impairmentOf,
  impairmentReason,
  worseOf,
} from '../../../../controller/health-manager/operating/impairment.js'
import { reasonsOf } from '../../../../controller/health-manager/operating/reasons.js'

const createMember = (id: string, address: string): StoredMember => ({
  ...{ id, operatingStatus: 'ONLINE', reason: null },
  ...{ adminStateUp: true, address, protocolPort: 8080 },
})

function createStored(fields: Partial<Stored> = {}): Stored {
  return {
    id: 'lb',
    operatingStatus: 'ONLINE',
    reason: null,
    reportedStatus: 'ONLINE',
    impairment: null,
    adminStateUp: true,
    settled: true,
    listeners: [{ id: 'l', operatingStatus: 'ONLINE', reason: null, adminStateUp: true }],
    pools: [
      {
        id: 'p',
        operatingStatus: 'ONLINE',
        reason: null,
        adminStateUp: true,
        members: [createMember('m1', '10.0.0.1'), createMember('m2', 'fd00::2')],
      },
    ],
    ...fields,
  }
}

const reported = (
  listener: 'OPEN' | 'FULL' | null,
  pool: 'UP' | 'DOWN' | null,
  m1?: MemberState,
  m2?: MemberState,
) => ({
  listeners: new Map(listener === null ? [] : [['l', listener]]),
  pools: new Map(pool === null ? [] : [['p', pool]]),
  failedChecks: new Map(),
  members: new Map([
    ...(m1 === undefined ? [] : [['m1', m1] as const]),
    ...(m2 === undefined ? [] : [['m2', m2] as const]),
  ]),
})

t.test('operating statuses follow the truth table', t => {
  const cases = [
    [
      'all well',
      createStored(),
      reported('OPEN', 'UP', 'UP', 'UP'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'a member down',
      createStored(),
      reported('OPEN', 'UP', 'UP', 'DOWN'),
      ['DEGRADED', 'ONLINE', 'DEGRADED', 'ONLINE', 'ERROR'],
    ],
    [
      'all members down',
      createStored(),
      reported('OPEN', 'DOWN', 'DOWN', 'DOWN'),
      ['ERROR', 'ONLINE', 'ERROR', 'ERROR', 'ERROR'],
    ],
    [
      'at the connection limit',
      createStored(),
      reported('FULL', 'UP', 'UP', 'UP'),
      ['DEGRADED', 'DEGRADED', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'draining and maintenance',
      createStored(),
      reported('OPEN', 'UP', 'DRAIN', 'MAINT'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'DRAINING', 'OFFLINE'],
    ],
    [
      'no monitor',
      createStored(),
      reported('OPEN', 'UP', 'NO_CHECK', 'NO_CHECK'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'NO_MONITOR', 'NO_MONITOR'],
    ],
    [
      'not yet checked',
      createStored(),
      reported('OPEN', 'UP', 'UNKNOWN', 'UP'),
      ['ONLINE', 'ONLINE', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'an enabled listener is missing',
      createStored(),
      reported(null, 'UP', 'UP', 'UP'),
      ['ERROR', 'ERROR', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'missing while a change is in progress',
      createStored({ settled: false }),
      reported(null, 'UP', 'UP', 'UP'),
      ['ONLINE', 'OFFLINE', 'ONLINE', 'ONLINE', 'ONLINE'],
    ],
    [
      'a disabled listener',
      createStored({ listeners: [{ id: 'l', operatingStatus: 'ONLINE', reason: null, adminStateUp: false }] }),
      reported(null, null),
      ['ONLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE'],
    ],
    [
      'a disabled load balancer',
      createStored({ adminStateUp: false }),
      reported(null, null),
      ['OFFLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE', 'OFFLINE'],
    ],
  ] as const
  for (const [name, stored, seen, [loadBalancer, listener, pool, m1, m2]] of cases) {
    const assessment = assess(stored, seen)
    t.same(
      [
        assessment.loadBalancer,
        assessment.listeners.get('l'),
        assessment.pools.get('p'),
        assessment.members.get('m1'),
        assessment.members.get('m2'),
      ],
      [loadBalancer, listener, pool, m1, m2],
      name,
    )
  }
  const unmonitored = createStored({
    pools: [
      {
        ...{ id: 'p', operatingStatus: 'OFFLINE', reason: null, adminStateUp: true },
        members: [{ ...createMember('m1', '10.0.0.1'), operatingStatus: 'NO_MONITOR' }],
      },
    ],
  })
  t.equal(
    assess(unmonitored, reported('OPEN', null)).members.get('m1'),
    'NO_MONITOR',
    'an unreported member without a monitor keeps its status',
  )
  t.end()
})

t.test('each object that is not ONLINE says why', async t => {
  const refused = { status: 'L4CON', code: 0, words: 'Connection refused' } as const
  const wrong = { status: 'L7STS', code: 503, words: '' } as const
  const explain = (stored: Stored, seen: ReturnType<typeof reported>, checks: Record<string, FailedCheck> = {}) => {
    const whole = { ...seen, failedChecks: new Map(Object.entries(checks)) }
    const { loadBalancer, listeners, pools, members } = reasonsOf(stored, whole, assess(stored, whole))
    return [loadBalancer, listeners.get('l'), pools.get('p'), members.get('m1'), members.get('m2')]
  }
  const disabled = 'The load balancer is disabled (admin_state_up is false)'
  const pending = 'The last change is not applied yet'
  const withMembers = (fields: Partial<StoredMember>) => {
    const stored = createStored()
    return {
      ...stored,
      pools: stored.pools.map(pool => ({ ...pool, members: pool.members.map(each => ({ ...each, ...fields })) })),
    }
  }
  const one = '1 of 2 members is down: [fd00::2]:8080: Layer4 connection problem: Connection refused'
  const all = 'All 2 members are down: 10.0.0.1:8080: Layer7 wrong status: HTTP 503'
  const idle = 'No member takes traffic: all are disabled or have weight 0'
  const unserved = 'The amphora does not serve the listener'
  const cases: [string, unknown[], unknown[]][] = [
    ['all is well', explain(createStored(), reported('OPEN', 'UP', 'UP', 'NO_CHECK')), [null, null, null, null, null]],
    [
      'a member refuses connections',
      explain(createStored(), reported('OPEN', 'UP', 'UP', 'DOWN'), { m2: refused }),
      [`Pool p: ${one}`, null, one, null, 'Layer4 connection problem: Connection refused'],
    ],
    [
      'all answer 503',
      explain(createStored(), reported('OPEN', 'DOWN', 'DOWN', 'DOWN'), { m1: wrong, m2: wrong }),
      [`Pool p: ${all}`, null, all, 'Layer7 wrong status: HTTP 503', 'Layer7 wrong status: HTTP 503'],
    ],
    [
      'an agent of the previous version',
      explain(createStored(), reported('OPEN', 'UP', 'UP', 'DOWN')).slice(4),
      ['The health check fails'],
    ],
    [
      'the check comes later than the state',
      explain(
        withMembers({ operatingStatus: 'ERROR', reason: 'before' }),
        reported('OPEN', 'DOWN', 'DOWN', 'UNKNOWN'),
      ).slice(3),
      ['before', 'before'],
    ],
    [
      'weight 0 and disabled members',
      explain(withMembers({ adminStateUp: false }), reported('OPEN', 'DOWN', 'DRAIN', 'MAINT')),
      [
        `Pool p: ${idle}`,
        null,
        idle,
        'The weight is 0: the member gets no new connections',
        'The member is disabled (admin_state_up is false)',
      ],
    ],
    [
      'the connection limit',
      explain(createStored(), reported('FULL', 'UP', 'UP', 'UP')).slice(0, 2),
      ['Listener l: The connection limit is reached', 'The connection limit is reached'],
    ],
    [
      'a listener is not served',
      explain(createStored(), reported(null, 'UP', 'UP', 'UP')).slice(0, 2),
      [`Listener l: ${unserved}`, unserved],
    ],
    [
      'a change is in progress',
      explain(createStored({ settled: false }), reported(null, null)),
      [null, pending, pending, pending, pending],
    ],
    [
      'no listener uses the pool',
      explain(createStored(), reported('OPEN', null)),
      [null, null, ...Array(3).fill('No enabled listener uses the pool')],
    ],
    [
      'the load balancer is disabled',
      explain(createStored({ adminStateUp: false }), reported(null, null)),
      Array(5).fill(disabled),
    ],
  ]
  for (const [name, seen, wanted] of cases) t.strictSame(seen, wanted, name)

  const state = fc.constantFrom<MemberState | undefined>('UP', 'DOWN', 'DRAIN', 'MAINT', 'NO_CHECK', undefined)
  const failed = fc.record({
    status: fc.constantFrom(...CHECK_STATUSES),
    code: fc.nat(999),
    words: fc.string().map(checkWords),
  })
  fc.assert(
    fc.property(
      fc.record({ adminStateUp: fc.boolean(), settled: fc.boolean() }),
      fc.constantFrom('OPEN' as const, 'FULL' as const, null),
      fc.constantFrom('UP' as const, 'DOWN' as const, null),
      ...([state, state, failed] as const),
      (fields, listener, pool, m1, m2, check) => {
        const stored = createStored(fields)
        const seen = { ...reported(listener, pool, m1, m2), failedChecks: new Map([['m1', check]]) }
        const assessment = assess(stored, seen)
        const reasons = reasonsOf(stored, seen, assessment)
        const needs = (status?: string) => status !== 'ONLINE' && status !== 'NO_MONITOR'
        const agrees = (statuses: ReadonlyMap<string, string>, texts: ReadonlyMap<string, string | null>) =>
          [...statuses].every(([id, status]) => needs(status) === (typeof texts.get(id) === 'string'))
        return (
          needs(assessment.loadBalancer) === (reasons.loadBalancer !== null) &&
          agrees(assessment.listeners, reasons.listeners) &&
          agrees(assessment.pools, reasons.pools) &&
          agrees(assessment.members, reasons.members) &&
          (reasons.loadBalancer ?? '').length < 300 &&
          /^[ -~]*$/.test(reasons.loadBalancer ?? '')
        )
      },
    ),
    { numRuns: 500 },
  )
})

t.test('an amphora’s mismatches lower the operating status', async t => {
  const carrier = (fields: Partial<AmphoraHealth> = {}): AmphoraHealth => ({
    heard: true,
    holdsVip: true,
    mismatches: [],
    ...fields,
  })
  const standby = (fields: Partial<AmphoraHealth> = {}) => carrier({ holdsVip: false, ...fields })
  const cases = [
    ['a single amphora is well', 'SINGLE', [carrier()], null],
    ['its VIP is missing', 'SINGLE', [carrier({ mismatches: ['address'] })], 'ERROR'],
    ['its VIP is missing, and it reports that', 'SINGLE', [standby({ mismatches: ['address'] })], 'ERROR'],
    ['its disk is full', 'SINGLE', [carrier({ mismatches: ['disk'] })], 'DEGRADED'],
    ['it is silent and may still serve', 'SINGLE', [carrier({ heard: false, mismatches: ['address'] })], null],
    ['its successor stands by', 'SINGLE', [carrier({ mismatches: ['haproxy'] }), standby()], 'ERROR'],
    ['a pair is well', 'ACTIVE_STANDBY', [carrier(), standby()], null],
    ['the VIP moves', 'ACTIVE_STANDBY', [standby(), standby()], null],
    ['the second is silent', 'ACTIVE_STANDBY', [carrier(), standby({ heard: false })], 'DEGRADED'],
    [
      'the second has no keepalived',
      'ACTIVE_STANDBY',
      [carrier(), standby({ mismatches: ['keepalived'] })],
      'DEGRADED',
    ],
    ['the first has no HAProxy', 'ACTIVE_STANDBY', [carrier({ mismatches: ['haproxy'] }), standby()], 'ERROR'],
    ['the second has taken over', 'ACTIVE_STANDBY', [standby({ mismatches: ['haproxy'] }), carrier()], 'DEGRADED'],
    [
      'neither has keepalived',
      'ACTIVE_STANDBY',
      [standby({ mismatches: ['keepalived'] }), standby({ mismatches: ['keepalived'] })],
      'ERROR',
    ],
    [
      'the first is silent and may still serve',
      'ACTIVE_STANDBY',
      [carrier({ heard: false }), standby({ mismatches: ['disk'] })],
      'DEGRADED',
    ],
    ['both are silent', 'ACTIVE_STANDBY', [carrier({ heard: false }), standby({ heard: false })], null],
  ] as const
  for (const [name, topology, carriers, expected] of cases) {
    t.equal(impairmentOf(topology, carriers, null), expected, name)
  }
  const silent = carrier({ heard: false, mismatches: ['haproxy'] })
  const silences = [
    ['the one that did not serve', 'SINGLE', [silent], 'ERROR', 'ERROR'],
    ['the one whose disk was full', 'SINGLE', [silent], 'DEGRADED', 'DEGRADED'],
    ['the one that did not serve, and its successor stands by', 'SINGLE', [silent, standby()], 'ERROR', 'ERROR'],
    ['the one that did not serve, and its successor serves', 'SINGLE', [silent, carrier()], 'ERROR', null],
    ['the second as well', 'ACTIVE_STANDBY', [silent, silent], 'DEGRADED', 'DEGRADED'],
    ['the first, while the second does not have the VIP yet', 'ACTIVE_STANDBY', [silent, standby()], 'ERROR', 'ERROR'],
    ['the first, while the second has the VIP', 'ACTIVE_STANDBY', [silent, carrier()], 'ERROR', 'DEGRADED'],
    ['none', 'ACTIVE_STANDBY', [carrier(), standby()], 'ERROR', null],
  ] as const
  for (const [who, topology, carriers, before, expected] of silences) {
    t.equal(impairmentOf(topology, carriers, before), expected, `falls silent: ${who}`)
  }
  t.equal(
    impairmentReason([carrier({ mismatches: ['address'] }), standby({ mismatches: ['disk'] }), silent]),
    'An amphora cannot restore its address, disk',
  )
  t.equal(
    impairmentReason([carrier(), standby({ heard: false })]),
    'Only one amphora is heard: no other could take over',
  )
  t.equal(worseOf('ONLINE', 'DEGRADED'), 'DEGRADED')
  t.equal(worseOf('DEGRADED', 'ERROR'), 'ERROR')
  t.equal(worseOf('ERROR', 'DEGRADED'), 'ERROR')
  t.equal(worseOf('OFFLINE', 'ERROR'), 'OFFLINE')
  t.equal(worseOf('DEGRADED', null), 'DEGRADED')
})
