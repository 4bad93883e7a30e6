import t from 'tap'
import { apartFrom } from '../../../controller/provider/amphora/plan/apart.js'
import type { ObservedAmphora } from '../../../controller/provider/amphora/plan/observation.js'
import { plan } from '../../../controller/provider/amphora/plan/plan.js'
import type { Step } from '../../../controller/provider/amphora/plan/step.js'
import { uuid } from '../../golden/models.js'
import { AMPHORAE_DIE, playStories, WORKERS_DIE } from '../../support/worlds/failover-stories.js'
import {
  createAmphora,
  createSettled,
  createTree,
  expectSteps,
  facts,
  MEMBER_SUBNET,
  observe,
  settlePair,
} from '../../support/worlds/plan-scene.js'

const REMOVAL: Step['kind'][][] = [['delete-machine'], ['delete-ports'], ['delete-amphora-row']]
const unreachable = { state: 'unreachable' as const }
/** The amphora accepts no more connections; `ended` says whether its last ones have ended. */
const draining = (amphora: ObservedAmphora, ended: boolean): ObservedAmphora => ({
  ...amphora,
  agent: {
    state: 'answers',
    haproxyVersion: '2.6.12',
    appliedGeneration: 1,
    appliedSha256: '',
    drain: { ended, cut: 0 },
  },
})

t.test('a machine stands apart from those in other roles that stay', async t => {
  const amphora = (id: string, role: ObservedAmphora['role'], change: Partial<ObservedAmphora> = {}) =>
    ({ id, role, status: 'ALLOCATED', replacing: false, ...change }) as const
  const [master, backup] = [amphora('m', 'MASTER'), amphora('b', 'BACKUP')]
  const leaving = amphora('l', 'MASTER', { replacing: true })
  const gone = amphora('g', 'MASTER', { status: 'PENDING_DELETE' })
  const cases: [readonly ReturnType<typeof amphora>[], string, string[]][] = [
    [[amphora('s', 'STANDALONE')], 's', []],
    [[amphora('s', 'STANDALONE', { replacing: true }), amphora('t', 'STANDALONE')], 't', []],
    [[master, backup], 'b', ['m']],
    [[leaving, backup], 'b', ['l']],
    [[leaving, master, backup], 'b', ['m']],
    [[leaving, master, backup], 'm', ['b']],
    [[gone, backup], 'b', []],
  ]
  for (const [amphorae, id, expected] of cases) t.same(apartFrom(amphorae, id), expected, `${id} of ${amphorae.length}`)
})

t.test('replacing a single amphora', async t => {
  const tree = createTree()
  const leaving = { ...createSettled(tree), replacing: true }
  const id = uuid(6, 2)
  const successor = createAmphora(tree, { id })
  const cold = { ...successor, status: 'BOOTING' as const, machine: 'absent' as const, ports: [], plugged: [] }
  await t.test('exactly one successor is allocated first', async t => {
    expectSteps(t, plan(tree, observe(leaving), facts()), [['allocate-amphora']], false)
  })
  await t.test('the successor is built while the old amphora serves', async t => {
    const next = plan(tree, observe(leaving, cold), facts())
    expectSteps(t, next, [['create-machine'], ['attach-port'], ['await-agent']], false)
    t.match(next.stages.flat(), [{ amphoraId: id }, { amphoraId: id }, { amphoraId: id }])
  })
  await t.test('a change during the replacement reaches the old amphora', async t => {
    const newer = createTree({ generation: 9 })
    const next = plan(newer, observe(leaving, cold), facts())
    expectSteps(t, next, [['apply', 'create-machine'], ['attach-port'], ['await-agent']], false)
    t.match(next.stages[0], [{ amphoraId: leaving.id }, {}])
  })
  await t.test('the successor gets its configuration, then takes the VIP; then the old one drains', async t => {
    const next = plan(tree, observe(leaving, successor), facts())
    const steps: Step['kind'][][] = [
      ['apply'],
      ['begin-handover'],
      ['apply'],
      ['demote-amphora'],
      ['announce-vip'],
      ['drain-amphora'],
    ]
    expectSteps(t, next, steps, false)
    t.match(next.stages.flat(), [
      { amphoraId: id, desired: { interfaces: [{ vips: [] }], haproxy: {} } },
      {
        parts: [
          { amphoraId: leaving.id, handover: { role: 'leaving', own: '203.0.113.21', peer: '203.0.113.22' } },
          { amphoraId: id, handover: { role: 'taking-over', own: '203.0.113.22', peer: '203.0.113.21' } },
        ],
      },
      { amphoraId: id, desired: { interfaces: [{ vips: [{}] }], haproxy: {} } },
      { amphoraId: leaving.id, standby: { interfaces: [{ vips: [] }], haproxy: {} } },
      { amphoraId: id },
      { amphoraId: leaving.id },
    ])
  })
  await t.test('an interrupted replacement resumes from each step', async t => {
    const taken = createSettled(tree, { id })
    const handover: Step['kind'][][] = [['begin-handover'], ['demote-amphora'], ['announce-vip'], ['drain-amphora']]
    const silence: Step['kind'][][] = [['silence-amphora'], ['announce-vip'], ...REMOVAL]
    expectSteps(t, plan(tree, observe(leaving, taken), facts()), handover, false)
    const demoted = { ...leaving, status: 'PENDING_DELETE' as const }
    expectSteps(t, plan(tree, observe(demoted, taken), facts()), handover, false)
    expectSteps(t, plan(tree, observe(draining(demoted, false), taken), facts()), [['observe-again']])
    expectSteps(t, plan(tree, observe(draining(demoted, true), taken), facts()), REMOVAL)
    const lost = { ...demoted, machine: 'absent' as const, plugged: [], agent: unreachable }
    expectSteps(t, plan(tree, observe(lost, taken), facts()), silence)
    expectSteps(t, plan(tree, observe(taken), facts()), [])
  })
  await t.test('a broken amphora is no longer repaired, only replaced', async t => {
    const hung = { ...leaving, agent: unreachable, silentSeconds: 99 }
    expectSteps(t, plan(tree, observe(hung), facts()), [['allocate-amphora']], false)
    const next = plan(tree, observe(hung, successor), facts())
    expectSteps(t, next, [['apply'], ['apply'], ['silence-amphora'], ['announce-vip'], ...REMOVAL], false)
  })
  await t.test('the old amphora stays while its successor cannot be reached', async t => {
    const silent = { ...successor, agent: unreachable }
    t.throws(() => plan(tree, observe(leaving, silent), facts()), { code: 'amphora-unreachable' })
  })
  await t.test('an amphora that never served is replaced without a handover', async t => {
    const unborn = { ...cold, replacing: true }
    expectSteps(t, plan(tree, observe(unborn), facts()), [['allocate-amphora']], false)
    const heir = createAmphora(tree, { id: uuid(6, 3) })
    const next = plan(tree, observe(unborn, heir), facts())
    expectSteps(t, next, [['apply'], ['silence-amphora'], ['announce-vip'], ...REMOVAL])
  })
})

t.test('replacing a pair', async t => {
  const tree = createTree({ topology: 'ACTIVE_STANDBY' })
  const fresh = {
    backup: createAmphora(tree, { id: uuid(6, 1), role: 'BACKUP' }),
    master: createAmphora(tree, { id: uuid(6, 2), role: 'MASTER' }),
  }
  const [backup, master] = settlePair(tree, fresh.backup, fresh.master)
  const [oldBackup, oldMaster] = [backup, master].map(amphora => ({ ...amphora, replacing: true })) as [
    ObservedAmphora,
    ObservedAmphora,
  ]
  const successor = createAmphora(tree, { id: uuid(6, 3), role: 'BACKUP' })

  await t.test('the backup is replaced first, and the master after it', async t => {
    const next = plan(tree, observe(oldMaster, oldBackup), facts())
    expectSteps(t, next, [['allocate-amphora']], false)
    t.match(next.stages.flat(), [{ role: 'BACKUP' }])
    const half = plan(tree, observe(oldMaster, successor, { ...oldBackup, status: 'PENDING_DELETE' }), facts())
    t.notOk(
      half.stages.flat().some(step => step.kind === 'allocate-amphora'),
      'not while the old backup exists',
    )
  })
  await t.test('the holder of the VIP is replaced last, whichever role it has', async t => {
    const next = plan(tree, observe(oldMaster, { ...oldBackup, heldVip: true }), facts())
    t.match(next.stages.flat(), [{ role: 'MASTER' }])
    const both = plan(tree, observe({ ...oldMaster, heldVip: true }, { ...oldBackup, heldVip: true }), facts())
    t.match(both.stages.flat(), [{ role: 'BACKUP' }])
  })
  await t.test('a broken amphora is replaced before a serving one', async t => {
    const dead = { ...oldMaster, machine: 'stopped' as const, plugged: [], agent: unreachable }
    t.match(plan(tree, observe(dead, oldBackup), facts()).stages.flat(), [{ role: 'MASTER' }])
  })
  await t.test('a replacement that has begun continues first', async t => {
    const begun = createAmphora(tree, { id: uuid(6, 4), role: 'MASTER', machine: 'absent', ports: [], plugged: [] })
    const next = plan(tree, observe(oldMaster, oldBackup, begun), facts())
    t.same(
      next.stages.flat().map(step => [step.kind, 'amphoraId' in step && step.amphoraId]),
      ['create-machine', 'attach-port', 'await-agent'].map(kind => [kind, begun.id]),
    )
  })
  await t.test('the successor is configured without the VIP, and the old one hands over and drains', async t => {
    const next = plan(tree, observe(oldMaster, oldBackup, successor), facts())
    expectSteps(t, next, [['apply'], ['begin-handover'], ['demote-amphora'], ['await-vip'], ['drain-amphora']], false)
    t.match(next.stages.flat(), [
      { amphoraId: successor.id, desired: { keepalived: null, interfaces: [{ vips: [] }], haproxy: {} } },
      { parts: [{ amphoraId: backup.id }, { amphoraId: master.id }] },
      { amphoraId: backup.id, standby: { keepalived: null } },
      { amphoraId: master.id, vips: [tree.vip.address] },
      { amphoraId: backup.id },
    ])
  })
  await t.test('then the remaining amphora learns its new peer before the successor joins', async t => {
    const left = { ...oldBackup, status: 'PENDING_DELETE' as const, plugged: [] }
    const next = plan(tree, observe({ ...oldMaster, replacing: false }, left, successor), facts())
    expectSteps(t, next, [['apply'], ['apply'], ...REMOVAL])
    t.match(next.stages.flat(), [{ amphoraId: master.id }, { amphoraId: successor.id }, { amphoraId: left.id }])
    const [first] = next.stages.flat()
    t.match(first, { desired: { keepalived: { text: /203\.0\.113\.23/ } } }, 'its new peer')
  })
  await t.test('a leaving amphora is demoted, or silenced if unreachable, before its peer forgets it', async t => {
    const leaving = { ...oldBackup, status: 'PENDING_DELETE' as const }
    const next = plan(tree, observe(oldMaster, leaving, successor), facts())
    const demotion: Step['kind'][][] = [['begin-handover'], ['demote-amphora'], ['await-vip'], ['drain-amphora']]
    expectSteps(t, next, [...demotion, ['apply'], ['apply']], false)
    const lost = { ...leaving, agent: unreachable }
    const without = plan(tree, observe(oldMaster, lost, successor), facts())
    expectSteps(t, without, [['silence-amphora'], ['apply'], ['apply'], ...REMOVAL], false)
  })
  await t.test('the successor is not admitted while its peer cannot be told of it', async t => {
    const grown = createTree({ topology: 'ACTIVE_STANDBY', generation: 9 }, [MEMBER_SUBNET])
    const comes = createAmphora(grown, { id: uuid(6, 3), role: 'BACKUP' })
    const leaves = draining({ ...oldBackup, status: 'PENDING_DELETE' }, false)
    expectSteps(t, plan(grown, observe(leaves, master, comes), facts()), [['attach-port']], false)
    const silent = { ...master, agent: unreachable, serves: true }
    t.throws(() => plan(grown, observe(leaves, silent, comes), facts()), { code: 'amphora-unreachable' })
    const applied = { ...grown, appliedGeneration: grown.generation }
    t.throws(() => plan(applied, observe(leaves, silent, comes), facts()), { code: 'amphora-unreachable' })
    const restarted = createAmphora(tree, { id: master.id, role: 'MASTER' })
    expectSteps(t, plan(grown, observe(leaves, restarted, comes), facts()), [['apply'], ['attach-port']], false)
    const ports = createAmphora(grown, { id: master.id }).ports
    const reaches = { ...master, ports, plugged: ports.map(({ id }) => id) }
    const next = plan(grown, observe(leaves, reaches, comes), facts())
    expectSteps(t, next, [['apply'], ['apply'], ['observe-again']])
    t.match(next.stages.flat(), [{ amphoraId: master.id }, { amphoraId: comes.id }, {}])
  })
  await t.test('the second replacement waits until the first amphora’s connections have ended', async t => {
    const leaving = draining({ ...oldBackup, status: 'PENDING_DELETE' }, false)
    const [in1, in2] = settlePair(tree, successor, master)
    expectSteps(t, plan(tree, observe({ ...in2, replacing: true }, leaving, in1), facts()), [['drain-amphora']], false)
    expectSteps(t, plan(tree, observe(in2, leaving, in1), facts()), [['observe-again']])
  })
  await t.test('no amphora is removed while the remaining one is impaired', async t => {
    const silent = { ...master, agent: unreachable }
    t.throws(() => plan(tree, observe(silent, oldBackup, { ...successor, agent: unreachable }), facts()), {
      code: 'amphora-unreachable',
    })
    t.throws(() => plan(tree, observe(silent, oldBackup, successor), facts()), { code: 'amphora-unreachable' })
  })
})

/** A short run of the stories that integration/provider/failover-stories.test.ts plays at greater length. */
const STORIES = 10

t.test('when workers die, an amphora always serves, each role has one successor, and failover completes', async t => {
  t.doesNotThrow(() => playStories(WORKERS_DIE, STORIES))
})

t.test('when amphorae die or hang too, failover completes', async t => {
  t.doesNotThrow(() => playStories(AMPHORAE_DIE, STORIES))
})
