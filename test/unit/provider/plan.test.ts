import t from 'tap'
import { covers, desiredPorts } from '../../../controller/provider/amphora/plan/desired-ports.js'
import type { AmphoraSight } from '../../../controller/provider/amphora/plan/observation.js'
import { plan } from '../../../controller/provider/amphora/plan/plan.js'
import type { Step } from '../../../controller/provider/amphora/plan/step.js'
import { aTree, uuid } from '../../golden/models.js'
import {
  AMPHORA,
  createAmphora,
  createSettled,
  createTree,
  expectSteps,
  facts,
  MEMBER_NETWORK,
  MEMBER_SUBNET,
  portsFor,
  SUBNETS,
  see,
} from '../../support/worlds/plan-scene.js'

/** Stories of one load balancer, told by what is seen and what is planned next. */

t.test('a load balancer is made', async t => {
  const tree = createTree({}, [MEMBER_SUBNET])
  await t.test('nothing is there: an amphora is allocated', async t => {
    expectSteps(t, plan(tree, see(), facts()), [['allocate-amphora']], false)
  })
  await t.test('a cold amphora gets a machine, its interfaces, and is waited for', async t => {
    const cold = createAmphora(tree, { status: 'BOOTING', machine: 'absent', ports: [], plugged: [] })
    const next = plan(tree, see(cold), facts())
    expectSteps(t, next, [['create-machine'], ['attach-port', 'attach-port'], ['await-agent']], false)
  })
  await t.test('a warm one only gets its interfaces', async t => {
    const warm = createAmphora(tree, { ports: [], plugged: [] })
    const next = plan(tree, see(warm), facts())
    expectSteps(t, next, [['attach-port', 'attach-port']], false)
    t.same(
      next.stages.flat().map(step => step.kind === 'attach-port' && step.port.request.name),
      [`octavia-lb-vrrp-${AMPHORA}`, `octavia-lb-member-${AMPHORA}-${MEMBER_NETWORK}`],
    )
  })
  await t.test('with all in place the configuration is applied, and that is all', async t => {
    const next = plan(tree, see(createAmphora(tree)), facts())
    expectSteps(t, next, [['apply']])
    const [step] = next.stages.flat()
    t.match(step, { desired: { generation: tree.generation, fence: 4 } })
  })
  await t.test('nothing is left to do then', async t => {
    expectSteps(t, plan(tree, see(createSettled(tree)), facts()), [])
  })
  await t.test('a booting amphora whose machine runs already is waited for', async t => {
    const booting = createAmphora(tree, { status: 'BOOTING', agent: { state: 'unreachable' } })
    expectSteps(t, plan(tree, see(booting), facts()), [['await-agent']], false)
  })
})

t.test('the VIP port', async t => {
  await t.test('ours is made again when it is missing', async t => {
    const tree = createTree()
    const next = plan(tree, { ...see(createAmphora(tree)), vipPort: null }, facts())
    expectSteps(t, next, [['ensure-vip-port']], false)
  })
  await t.test("the user's own cannot be made again, and the owner is told", async t => {
    const tree = createTree({ vip: { ...aTree().vip, ownsPort: false } })
    t.throws(() => plan(tree, { ...see(createAmphora(tree)), vipPort: null }, facts()), { code: 'vip-port-missing' })
  })
})

t.test('a change', async t => {
  const tree = createTree({ generation: 8 }, [null])
  await t.test('a newer generation is applied even when the configuration is the same', async t => {
    const amphora = createSettled(createTree({ generation: 7 }, [null]))
    const next = plan(tree, see(amphora), facts())
    expectSteps(t, next, [['apply']])
  })
  await t.test('a member on a new network brings an interface before it is configured', async t => {
    const amphora = createSettled(tree)
    const grown = createTree({ generation: 9 }, [null, MEMBER_SUBNET])
    expectSteps(t, plan(grown, see(amphora), facts()), [['attach-port']], false)
  })
  await t.test('the interface goes with the last such member, after the configuration has let go of it', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const after = createTree({ generation: 8 }, [null])
    const next = plan(after, see(createSettled(before)), facts())
    expectSteps(t, next, [['apply'], ['detach-port']])
    const [, detach] = next.stages.flat()
    t.match(detach, { portId: portsFor(before)[1]!.id })
  })
  await t.test('a port that was made but never plugged goes too', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const amphora = createSettled(tree, { ports: portsFor(before), plugged: [portsFor(before)[0]!.id] })
    expectSteps(t, plan(tree, see(amphora), facts()), [['detach-port']])
  })
  await t.test('members under deletion need no interface', async t => {
    const leaving = createTree({}, [MEMBER_SUBNET])
    leaving.pools[0]!.members[0]!.change = 'delete'
    t.equal(desiredPorts(leaving, SUBNETS, AMPHORA).length, 1)
  })
  await t.test(
    'members on the VIP subnet need no interface of their own, and two subnets of a network share one',
    async t => {
      const desired = desiredPorts(createTree({}, [uuid(7, 1), MEMBER_SUBNET, uuid(7, 3)]), SUBNETS, AMPHORA)
      t.equal(desired.length, 2)
      t.same(desired[1]?.request.fixedIps, [{ subnetId: MEMBER_SUBNET }, { subnetId: uuid(7, 3) }])
    },
  )
  await t.test('a port that lacks a subnet of its network is made again', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const after = createTree({ generation: 8 }, [MEMBER_SUBNET, uuid(7, 3)])
    const amphora = createSettled(before)
    t.notOk(covers(amphora.ports[1]!, desiredPorts(after, SUBNETS, AMPHORA)[1]!))
    expectSteps(t, plan(after, see(amphora), facts()), [['detach-port'], ['attach-port']], false)
  })
  await t.test('a member on a subnet that is gone: the owner is told which', async t => {
    const lost = createTree({}, [uuid(7, 9)])
    t.throws(() => plan(lost, see(createAmphora(tree)), facts()), { code: 'subnet-missing', message: /7777.*9/ })
  })
})

t.test('an amphora breaks', async t => {
  const tree = createTree()
  const settled = createSettled(tree)
  for (const machine of ['stopped', 'absent'] as const) {
    await t.test(`a machine that is ${machine} is made again in place, at once`, async t => {
      const broken = { ...settled, machine, plugged: [], agent: { state: 'unreachable' as const } }
      const next = plan(tree, see(broken), facts({ restartsLeft: 0 }))
      expectSteps(t, next, [['create-machine'], ['attach-port'], ['await-agent']], false)
    })
  }
  await t.test('then it has nothing applied, whatever the record says', async t => {
    const agent = {
      state: 'answers' as const,
      haproxyVersion: '2.6.12',
      appliedGeneration: 0,
      appliedSha256: null,
      drain: null,
    }
    expectSteps(t, plan(tree, see({ ...settled, agent }), facts()), [['apply']])
  })
  await t.test('one that asks for its configuration gets it', async t => {
    expectSteps(t, plan(tree, see({ ...settled, needsApply: true }), facts()), [['apply']])
  })
  const hung = {
    ...settled,
    agent: { state: 'unreachable' as const },
    serves: false,
    silentSeconds: 16,
    heardSeconds: 16,
  }
  const restart: Step['kind'][][] = [['restart-machine'], ['attach-port'], ['await-agent']]
  const unreachable = { code: 'amphora-unreachable' }
  const changed = { ...tree, generation: tree.generation + 1 }
  await t.test('one that is silent too long and does not serve is restarted', async t => {
    expectSteps(t, plan(tree, see(hung), facts()), restart, false)
  })
  await t.test('not when it was heard a moment ago', async t => {
    t.throws(() => plan(tree, see({ ...hung, silentSeconds: 14, heardSeconds: 14 }), facts()), unreachable)
  })
  await t.test('and not when no restart is left', async t => {
    t.throws(() => plan(tree, see(hung), facts({ restartsLeft: 0 })), { code: 'restart-limit' })
  })
  await t.test('one that serves is never restarted because it cannot be seen', async t => {
    const unseen = { ...hung, serves: true, silentSeconds: 9999, heardSeconds: 9999, unreachableSeconds: 9999 }
    const alone = facts({ silentAlone: new Set([hung.id]) })
    expectSteps(t, plan({ ...tree, appliedGeneration: tree.generation }, see(unseen), alone), [])
    t.throws(() => plan(changed, see(unseen), alone), { ...unreachable, message: /serves but can be neither/ })
  })
  await t.test('one that nobody can look into is restarted when it alone fell silent', async t => {
    const opaque = { ...hung, serves: null }
    t.throws(() => plan(tree, see(opaque), facts()), { ...unreachable, message: /until something shows/ })
    expectSteps(t, plan(tree, see(opaque), facts({ silentAlone: new Set([hung.id]) })), restart, false)
  })
  await t.test('one that has nothing to serve and nothing to take in is left alone', async t => {
    const idle = { ...tree, appliedGeneration: tree.generation, listeners: [] }
    t.throws(() => plan(idle, see(hung), facts()), unreachable)
    expectSteps(t, plan({ ...idle, generation: idle.generation + 1 }, see(hung), facts()), restart, false)
  })
  await t.test('one that cannot repair itself is replaced after a while', async t => {
    expectSteps(t, plan(tree, see({ ...settled, mismatchedSeconds: 60 }), facts()), [])
    const broken = { ...settled, mismatchedSeconds: 61 }
    expectSteps(t, plan(tree, see(broken), facts()), [['replace-amphora']], false)
    expectSteps(t, plan(tree, see(broken), facts({ restartsLeft: 0 })), [])
    expectSteps(t, plan(tree, see({ ...broken, replacing: true }), facts()), [['allocate-amphora']], false)
    const unheard = { ...broken, silentSeconds: 16, heardSeconds: 16 }
    expectSteps(t, plan(tree, see(unheard), facts()), [], true)
  })
  await t.test('one that is heard but cannot be reached is replaced after a while, new before old', async t => {
    const mute = { ...hung, serves: true, silentSeconds: 1, heardSeconds: 1 }
    t.throws(() => plan(changed, see({ ...mute, unreachableSeconds: 59 }), facts()), {
      ...unreachable,
      message: /is heard but cannot be reached.*60 s/,
    })
    const overdue = { ...mute, unreachableSeconds: 61 }
    expectSteps(t, plan(tree, see(overdue), facts()), [['replace-amphora']], false)
    t.throws(() => plan(tree, see(overdue), facts({ restartsLeft: 0 })), { code: 'restart-limit' })
    expectSteps(t, plan(tree, see({ ...overdue, replacing: true }), facts()), [['allocate-amphora']], false)
  })
})

t.test('a pair', async t => {
  const tree = createTree({ topology: 'ACTIVE_STANDBY' })
  const backup = createAmphora(tree, { id: uuid(6, 1), role: 'BACKUP' })
  const master = createAmphora(tree, { id: uuid(6, 2), role: 'MASTER' })
  await t.test('both are allocated at once', async t => {
    const next = plan(tree, see(), facts())
    expectSteps(t, next, [['allocate-amphora', 'allocate-amphora']], false)
    t.same(
      next.stages.flat().map(step => step.kind === 'allocate-amphora' && step.role),
      ['BACKUP', 'MASTER'],
    )
  })
  await t.test('the one that carries no traffic is configured first, each alone', async t => {
    const next = plan(tree, see(master, backup), facts())
    expectSteps(t, next, [['apply'], ['apply']])
    t.match(next.stages.flat(), [{ amphoraId: backup.id }, { amphoraId: master.id }])
  })
  await t.test('nothing is configured before both addresses are known', async t => {
    const bare = { ...backup, ports: [], plugged: [] }
    expectSteps(t, plan(tree, see(master, bare), facts()), [['attach-port']], false)
  })
  await t.test('the living one gets a change while the dead one is made again', async t => {
    const dead = { ...backup, machine: 'stopped' as const, plugged: [] }
    const next = plan(tree, see(master, dead), facts())
    expectSteps(t, next, [['apply', 'create-machine'], ['attach-port'], ['await-agent']], false)
  })
  await t.test('and also while the other is only silent; the trouble is told when nothing else is left', async t => {
    const silent = { ...backup, agent: { state: 'unreachable' as const } }
    expectSteps(t, plan(tree, see(master, silent), facts()), [['apply']], false)
    const [apply] = plan(tree, see(master, silent), facts()).stages.flat()
    const sha256 = apply?.kind === 'apply' ? apply.desired.sha256 : null
    const done = { appliedGeneration: tree.generation, appliedSha256: sha256 }
    const settled = {
      ...master,
      ...done,
      agent: { state: 'answers' as const, haproxyVersion: '2.6.12', drain: null, ...done },
    }
    t.throws(() => plan(tree, see(settled, silent), facts()), { code: 'amphora-unreachable' })
  })
  await t.test('two hung ones share the restarts that are left', async t => {
    const hung = (amphora: AmphoraSight) => ({
      ...amphora,
      agent: { state: 'unreachable' as const },
      serves: false,
      silentSeconds: 99,
      heardSeconds: 99,
    })
    const next = plan(tree, see(hung(master), hung(backup)), facts({ restartsLeft: 1 }))
    expectSteps(t, next, [['restart-machine'], ['attach-port'], ['await-agent']], false)
  })
  await t.test('of one that nobody can look into, the other tells: it has the VIP', async t => {
    const silent = {
      ...backup,
      appliedSha256: 'x',
      agent: { state: 'unreachable' as const },
      silentSeconds: 99,
      heardSeconds: 99,
    }
    const [first] = plan(tree, see({ ...master, heldVip: true }, silent), facts()).stages
    t.ok(first?.some(step => step.kind === 'restart-machine'))
  })
  await t.test('an amphora that nobody needs goes when the others serve', async t => {
    const single = createTree()
    const doomed = createAmphora(single, { id: uuid(6, 3), status: 'PENDING_DELETE' })
    const removal: Step['kind'][][] = [
      ['silence-amphora'],
      ['announce-vip'],
      ['delete-machine'],
      ['delete-ports'],
      ['delete-amphora-row'],
    ]
    expectSteps(t, plan(single, see(doomed, createSettled(single)), facts()), removal)
    expectSteps(t, plan(single, see(doomed, createAmphora(single)), facts()), [['apply'], ...removal])
  })
})

t.test('a load balancer is deleted, whatever is left of it', async t => {
  const tree = createTree({ change: 'delete' })
  const all: Step['kind'][][] = [['delete-machine'], ['delete-ports'], ['delete-amphora-row'], ['release-vip-port']]
  const half = createAmphora(tree, { status: 'BOOTING', machine: 'absent', ports: [], plugged: [] })
  const nowhere = { vipPort: null, subnets: [], mtus: new Map() }
  expectSteps(t, plan(tree, { ...nowhere, amphorae: [createAmphora(tree)] }, facts()), all)
  expectSteps(t, plan(tree, { ...nowhere, amphorae: [half] }, facts()), all)
  expectSteps(t, plan(tree, { ...nowhere, amphorae: [] }, facts()), [['release-vip-port']])
})
