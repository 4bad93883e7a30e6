import t from 'tap'
import { covers, desiredPorts } from '../../../controller/provider/amphora/plan/desired-ports.js'
import type { ObservedAmphora } from '../../../controller/provider/amphora/plan/observation.js'
import { plan } from '../../../controller/provider/amphora/plan/plan.js'
import type { Step } from '../../../controller/provider/amphora/plan/step.js'
import { aListener, aTree, uuid } from '../../golden/models.js'
import {
  AMPHORA,
  createAmphora,
  createSettled,
  createTree,
  expectSteps,
  facts,
  leaving,
  MEMBER_NETWORK,
  MEMBER_SUBNET,
  observe,
  portsFor,
  SECOND_SUBNET,
  SUBNETS,
  settlePair,
} from '../../support/worlds/plan-scene.js'

/** Stories of one load balancer: what is observed, and what the plan does next. */

t.test('creating a load balancer', async t => {
  const tree = createTree({}, [MEMBER_SUBNET])
  await t.test('without an amphora, one is allocated', async t => {
    expectSteps(t, plan(tree, observe(), facts()), [['allocate-amphora']], false)
  })
  await t.test('a cold amphora gets a machine and interfaces, and the plan waits for its agent', async t => {
    const cold = createAmphora(tree, { status: 'BOOTING', machine: 'absent', ports: [], plugged: [] })
    const next = plan(tree, observe(cold), facts())
    expectSteps(t, next, [['create-machine'], ['attach-port', 'attach-port'], ['await-agent']], false)
  })
  await t.test('a warm amphora only gets its interfaces', async t => {
    const warm = createAmphora(tree, { ports: [], plugged: [] })
    const next = plan(tree, observe(warm), facts())
    expectSteps(t, next, [['attach-port', 'attach-port']], false)
    t.same(
      next.stages.flat().map(step => step.kind === 'attach-port' && step.port.request.name),
      [`octavia-lb-vrrp-${AMPHORA}`, `octavia-lb-member-${AMPHORA}-${MEMBER_NETWORK}`],
    )
  })
  await t.test('a complete amphora gets its configuration', async t => {
    const next = plan(tree, observe(createAmphora(tree)), facts())
    expectSteps(t, next, [['apply']])
    const [step] = next.stages.flat()
    t.match(step, { desired: { generation: tree.generation, fence: 4 } })
  })
  await t.test('a settled load balancer needs nothing', async t => {
    expectSteps(t, plan(tree, observe(createSettled(tree)), facts()), [])
  })
  await t.test('the plan waits for the agent of a booting amphora whose machine runs', async t => {
    const booting = createAmphora(tree, { status: 'BOOTING', agent: { state: 'unreachable' } })
    expectSteps(t, plan(tree, observe(booting), facts()), [['await-agent']], false)
  })
})

t.test('the VIP port', async t => {
  await t.test('our missing VIP port is created again', async t => {
    const tree = createTree()
    const next = plan(tree, { ...observe(createAmphora(tree)), vipPort: null }, facts())
    expectSteps(t, next, [['ensure-vip-port']], false)
  })
  await t.test('the VIP port gets the load balancer’s security groups before anything is built on it', async t => {
    const [one, two] = [uuid(5, 1), uuid(5, 2)]
    const tree = createTree({ vip: { ...aTree().vip, securityGroups: [one, two] } })
    const withGroups = (securityGroups: string[]) => {
      const observed = observe(createSettled(tree))
      return plan(tree, { ...observed, vipPort: { ...observed.vipPort!, securityGroups } }, facts())
    }
    expectSteps(t, withGroups([]), [['filter-vip-port']], false)
    expectSteps(t, withGroups([one]), [['filter-vip-port']], false)
    expectSteps(t, withGroups([two, one]), [['apply']])
  })
  await t.test('a user’s missing VIP port cannot be created again and is reported', async t => {
    const tree = createTree({ vip: { ...aTree().vip, ownsPort: false } })
    t.throws(() => plan(tree, { ...observe(createAmphora(tree)), vipPort: null }, facts()), {
      code: 'vip-port-missing',
    })
  })
})

t.test('changing a load balancer', async t => {
  const tree = createTree({ generation: 8 }, [null])
  await t.test('a newer generation is applied even if the configuration is the same', async t => {
    const amphora = createSettled(createTree({ generation: 7 }, [null]))
    const next = plan(tree, observe(amphora), facts())
    expectSteps(t, next, [['apply']])
  })
  await t.test('an interface that is not as its port says keeps its MAC address', async t => {
    const settled = createSettled(createTree({ generation: 7 }, [null]))
    const [id = ''] = settled.plugged
    const own = { id, macAddress: '52:54:00:AB:00:01' }
    const [[step]] = plan(tree, observe({ ...settled, interfaces: [own] }), facts()).stages as [[Step]]
    const interfaces = step.kind === 'apply' ? step.desired.interfaces : []
    t.match(interfaces, [{ mac: '52:54:00:ab:00:01' }])
  })
  await t.test('an amphora whose agent is too old for UDP is replaced before it is configured', async t => {
    const older = createSettled(tree)
    const listeners = [...tree.listeners, aListener(2, { protocol: 'UDP' })]
    const grown = createTree({ generation: 9, listeners }, [null])
    expectSteps(t, plan(grown, observe(older), facts()), [['replace-amphora']], false)
    const tooMany = () => plan(grown, observe(older), facts({ restartsLeft: 0 }))
    t.throws(tooMany, { code: 'agent-too-old', message: /too old to balance UDP and SCTP, and too many amphorae/ })
    const disabled = createTree({ ...grown, listeners: listeners.map(one => ({ ...one, adminStateUp: false })) })
    expectSteps(t, plan(disabled, observe(older), facts()), [['apply']])
    const newer = { ...older, agent: { ...older.agent, balancesDatagrams: true } as ObservedAmphora['agent'] }
    const next = plan(grown, observe(newer), facts())
    expectSteps(t, next, [['apply']])
    t.match(next.stages.flat(), [{ desired: { datagrams: { listeners: [{ id: uuid(2, 2) }] } } }])
  })
  await t.test(
    'an agent that can be upgraded in place is, before it is configured for what the older one lacks',
    async t => {
      const [was, will] = ['0'.repeat(64), '1'.repeat(64)]
      const listeners = [...tree.listeners, aListener(2, { protocol: 'UDP' })]
      const grown = createTree({ generation: 9, listeners }, [null])
      const settled = createSettled(tree)
      const older = { ...settled, agent: { ...settled.agent, bundle: was } as ObservedAmphora['agent'] }
      const brings = (agentBundle: string) => facts({ agentBundle })
      expectSteps(t, plan(grown, observe(older), brings(will)), [['upgrade-agent']], false)
      expectSteps(t, plan(grown, observe(older), brings(was)), [['replace-amphora']], false)
      const failed = { ...older, upgradeFailed: will }
      expectSteps(t, plan(grown, observe(failed), brings(will)), [['replace-amphora']], false)
    },
  )
  await t.test('an upgrade in place comes last, and waits for members that are leaving', async t => {
    const will = '1'.repeat(64)
    const marked = { ...createSettled(tree), upgradeTo: will }
    const now = facts({ agentBundle: will })
    expectSteps(t, plan(tree, observe(marked), now), [['upgrade-agent']], false)
    expectSteps(t, plan(tree, observe(marked), facts()), [])
    const changed = createTree({ generation: 9 }, [null])
    expectSteps(t, plan(changed, observe(marked), now), [['apply']], false)
    const before = createTree({}, [MEMBER_SUBNET])
    const ports = portsFor(before)
    const held = { ...leaving(marked, 5), ports, plugged: ports.map(({ id }) => id) }
    expectSteps(t, plan(tree, observe(held), now), [['observe-again']])
  })
  await t.test(
    'an amphora whose agent speaks another protocol is told apart from one that cannot be reached',
    async t => {
      const speaks = (is: 'too-old' | 'too-new') => ({
        agent: { state: 'incompatible' as const, is, text: `It is ${is}.` },
      })
      const older = { ...createSettled(tree), ...speaks('too-old') }
      expectSteps(t, plan(tree, observe(older), facts()), [['replace-amphora']], false)
      const settled = createTree({ generation: 8, appliedGeneration: 8 }, [null])
      const serving = { ...older, serves: true }
      expectSteps(t, plan(settled, observe(serving), facts({ restartsLeft: 0 })), [])
      const waiting = () => plan(tree, observe(serving), facts({ restartsLeft: 0 }))
      t.throws(waiting, { code: 'agent-incompatible', message: 'It is too-old.' })
      const born = { ...createAmphora(tree, { status: 'BOOTING' }), ...speaks('too-old') }
      t.throws(
        () => plan(tree, observe(born), facts()),
        { code: 'agent-incompatible' },
        'another one would be no better',
      )
      const newer = { ...createSettled(tree), ...speaks('too-new') }
      t.throws(() => plan(tree, observe(newer), facts()), { code: 'agent-incompatible', message: 'It is too-new.' })
    },
  )
  await t.test('a member on a new network gets an interface before it is configured', async t => {
    const amphora = createSettled(tree)
    const grown = createTree({ generation: 9 }, [null, MEMBER_SUBNET])
    expectSteps(t, plan(grown, observe(amphora), facts()), [['attach-port']], false)
  })
  await t.test('an interface is removed once no request uses it any more', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const after = createTree({ generation: 8 }, [null])
    const ports = portsFor(before)
    const had = { ports, plugged: ports.map(({ id }) => id) }
    expectSteps(
      t,
      plan(after, observe(leaving(createSettled(before), 0)), facts()),
      [['apply'], ['await-leaving']],
      false,
    )
    const settled = createSettled(after, had)
    for (const [left, seconds] of [
      [1800, 180],
      [20, 2],
      [1, 1],
    ] as const) {
      const next = plan(after, observe(leaving(settled, left)), facts())
      expectSteps(t, next, [['observe-again']])
      t.match(next.stages.flat(), [{ seconds }])
    }
    const next = plan(after, observe(leaving(settled, 0)), facts())
    expectSteps(t, next, [['detach-port']])
    t.match(next.stages.flat(), [{ portId: ports[1]!.id }])
  })
  await t.test('a port releases its address on a subnet once no request uses that subnet any more', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const after = createTree({ generation: 8 }, [SECOND_SUBNET])
    const both = portsFor(createTree({}, [MEMBER_SUBNET, SECOND_SUBNET]))
    const had = { ports: both, plugged: both.map(({ id }) => id) }
    const amphora = leaving(createSettled(before, had), 0)
    const first = plan(after, observe(amphora), facts())
    expectSteps(t, first, [['apply'], ['await-leaving']], false)
    const keeps = { interfaces: [{}, { addresses: both[1]!.fixedIps.map(({ address }) => `${address}/24`).sort() }] }
    t.match(first.stages.flat(), [{ desired: keeps }])
    const settled = createSettled(after, had)
    expectSteps(t, plan(after, observe(leaving(settled, 20)), facts()), [['observe-again']])
    const next = plan(after, observe(leaving(settled, 0)), facts())
    expectSteps(t, next, [['shrink-port']], false)
    t.match(next.stages.flat(), [{ portId: both[1]!.id, subnetIds: [MEMBER_SUBNET] }])
  })
  await t.test('an interface is removed at once when another one leads to the same addresses', async t => {
    const twin = { ...SUBNETS[1]!, id: uuid(7, 4), networkId: uuid(8, 3) }
    const seeTwin = (amphora: ObservedAmphora) => ({ ...observe(amphora), subnets: [...SUBNETS, twin] })
    const before = portsFor(createTree({}, [MEMBER_SUBNET]))
    const after = createTree({ generation: 8 }, [twin.id])
    const added = desiredPorts(after, [...SUBNETS, twin], AMPHORA)[1]!.request
    const port = { ...before[1]!, ...added, id: uuid(9, 7), macAddress: 'fa:16:3e:00:00:07', allowedAddresses: [] }
    const ports = [...before, { ...port, fixedIps: [{ subnetId: twin.id, address: '192.0.2.77' }] }]
    const amphora = leaving(createSettled(createTree({}, [MEMBER_SUBNET])), 30)
    const next = plan(after, seeTwin({ ...amphora, ports, plugged: ports.map(({ id }) => id) }), facts())
    expectSteps(t, next, [['apply'], ['detach-port']])
    t.match(next.stages.flat(), [{}, { portId: before[1]!.id }])
  })
  await t.test('members that leave do not delay a required interface', async t => {
    expectSteps(t, plan(tree, observe(leaving(createSettled(tree), 30)), facts()), [])
  })
  await t.test('an older agent does not report open requests, so its interface is removed at once', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const after = createTree({ generation: 8 }, [null])
    expectSteps(t, plan(after, observe(createSettled(before)), facts()), [['apply'], ['detach-port']])
  })
  await t.test('the interface of one amphora waits even if the other amphora cannot be reached', async t => {
    const pair = createTree({ topology: 'ACTIVE_STANDBY', generation: 9, appliedGeneration: 9 }, [null])
    const ports = portsFor(createTree({}, [MEMBER_SUBNET]))
    const before = createAmphora(pair, { role: 'BACKUP', ports, plugged: ports.map(({ id }) => id) })
    const [backup, master] = settlePair(pair, before, createAmphora(pair, { id: uuid(6, 2), role: 'MASTER' }))
    const silent = { ...master, agent: { state: 'unreachable' as const }, serves: true }
    expectSteps(t, plan(pair, observe(leaving(backup, 30), silent), facts()), [['observe-again']])
  })
  await t.test('a port that was never plugged is removed too', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const amphora = createSettled(tree, { ports: portsFor(before), plugged: [portsFor(before)[0]!.id] })
    expectSteps(t, plan(tree, observe(amphora), facts()), [['detach-port']])
  })
  await t.test('members under deletion need no interface', async t => {
    const leaving = createTree({}, [MEMBER_SUBNET])
    leaving.pools[0]!.members[0]!.change = 'delete'
    t.equal(desiredPorts(leaving, SUBNETS, AMPHORA).length, 1)
  })
  await t.test('members on the VIP subnet need no interface, and subnets of a network share one', async t => {
    const desired = desiredPorts(createTree({}, [uuid(7, 1), MEMBER_SUBNET, uuid(7, 3)]), SUBNETS, AMPHORA)
    t.equal(desired.length, 2)
    t.same(desired[1]?.request.fixedIps, [{ subnetId: MEMBER_SUBNET }, { subnetId: uuid(7, 3) }])
  })
  await t.test('a port that lacks a subnet of its network gets an address there, and stays attached', async t => {
    const before = createTree({}, [MEMBER_SUBNET])
    const after = createTree({ generation: 8 }, [MEMBER_SUBNET, uuid(7, 3)])
    const amphora = createSettled(before)
    t.notOk(covers(amphora.ports[1]!, desiredPorts(after, SUBNETS, AMPHORA)[1]!))
    expectSteps(t, plan(after, observe(amphora), facts()), [['attach-port']], false)
  })
  await t.test('a member on a missing subnet is reported with the subnet', async t => {
    const lost = createTree({}, [uuid(7, 9)])
    t.throws(() => plan(lost, observe(createAmphora(tree)), facts()), { code: 'subnet-missing', message: /7777.*9/ })
  })
})

t.test('repairing an amphora', async t => {
  const tree = createTree()
  const settled = createSettled(tree)
  for (const machine of ['stopped', 'absent'] as const) {
    await t.test(`a machine that is ${machine} is recreated in place at once`, async t => {
      const broken = { ...settled, machine, plugged: [], agent: { state: 'unreachable' as const } }
      const next = plan(tree, observe(broken), facts({ restartsLeft: 0 }))
      expectSteps(t, next, [['create-machine'], ['attach-port'], ['await-agent']], false)
    })
  }
  await t.test('a recreated machine gets its configuration, whatever is recorded', async t => {
    const agent = {
      state: 'answers' as const,
      haproxyVersion: '2.6.12',
      appliedGeneration: 0,
      appliedSha256: null,
      drain: null,
    }
    expectSteps(t, plan(tree, observe({ ...settled, agent }), facts()), [['apply']])
  })
  await t.test('an amphora that asks for its configuration gets it', async t => {
    expectSteps(t, plan(tree, observe({ ...settled, needsApply: true }), facts()), [['apply']])
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
  await t.test('an amphora that is silent for too long and does not serve is restarted', async t => {
    expectSteps(t, plan(tree, observe(hung), facts()), restart, false)
  })
  await t.test('it is not restarted if it sent a heartbeat a moment ago', async t => {
    t.throws(() => plan(tree, observe({ ...hung, silentSeconds: 14, heardSeconds: 14 }), facts()), unreachable)
  })
  await t.test('one of a kind that starts slowly gets its time before its first configuration', async t => {
    const slow = { ...hung, serves: null, appliedSha256: null, patienceSeconds: 120 }
    t.throws(() => plan(tree, observe(slow), facts()), unreachable)
    expectSteps(t, plan(tree, observe({ ...slow, silentSeconds: 121 }), facts()), restart, false)
    expectSteps(t, plan(tree, observe({ ...slow, patienceSeconds: 0 }), facts()), restart, false)
  })
  await t.test('it is not restarted if no restarts are left', async t => {
    t.throws(() => plan(tree, observe(hung), facts({ restartsLeft: 0 })), { code: 'restart-limit' })
  })
  await t.test('a serving amphora is never restarted because it is silent', async t => {
    const unseen = { ...hung, serves: true, silentSeconds: 9999, heardSeconds: 9999, unreachableSeconds: 9999 }
    const alone = facts({ silentAlone: new Set([hung.id]) })
    expectSteps(t, plan({ ...tree, appliedGeneration: tree.generation }, observe(unseen), alone), [])
    t.throws(() => plan(changed, observe(unseen), alone), {
      ...unreachable,
      message: /carries traffic but cannot be reached/,
    })
  })
  await t.test('an amphora is restarted if it alone fell silent and it is unknown whether it serves', async t => {
    const opaque = { ...hung, serves: null }
    const alone = facts({ silentAlone: new Set([hung.id]) })
    t.throws(() => plan(tree, observe(opaque), facts()), { ...unreachable, message: /may still carry traffic/ })
    expectSteps(t, plan(tree, observe(opaque), alone), restart, false)
    t.throws(() => plan(tree, observe({ ...opaque, canBeCutOff: false }), alone), { message: /switch that host off/ })
  })
  await t.test('an amphora with nothing to serve and nothing to apply is left alone', async t => {
    const idle = { ...tree, appliedGeneration: tree.generation, listeners: [] }
    t.throws(() => plan(idle, observe(hung), facts()), unreachable)
    expectSteps(t, plan({ ...idle, generation: idle.generation + 1 }, observe(hung), facts()), restart, false)
  })
  await t.test('an amphora that cannot repair itself is replaced after a while', async t => {
    expectSteps(t, plan(tree, observe({ ...settled, mismatchedSeconds: 60 }), facts()), [])
    const broken = { ...settled, mismatchedSeconds: 61 }
    expectSteps(t, plan(tree, observe(broken), facts()), [['replace-amphora']], false)
    expectSteps(t, plan(tree, observe(broken), facts({ restartsLeft: 0 })), [])
    expectSteps(t, plan(tree, observe({ ...broken, replacing: true }), facts()), [['allocate-amphora']], false)
    const unheard = { ...broken, silentSeconds: 16, heardSeconds: 16 }
    expectSteps(t, plan(tree, observe(unheard), facts()), [], true)
  })
  await t.test(
    'an amphora that sends heartbeats but is unreachable is replaced after a while, successor first',
    async t => {
      const mute = { ...hung, serves: true, silentSeconds: 1, heardSeconds: 1 }
      t.throws(() => plan(changed, observe({ ...mute, unreachableSeconds: 59 }), facts()), {
        ...unreachable,
        message: /sends heartbeats but cannot be reached.*60 s/,
      })
      const overdue = { ...mute, unreachableSeconds: 61 }
      expectSteps(t, plan(tree, observe(overdue), facts()), [['replace-amphora']], false)
      t.throws(() => plan(tree, observe(overdue), facts({ restartsLeft: 0 })), { code: 'restart-limit' })
      t.throws(() => plan(tree, observe({ ...overdue, canBeCutOff: false }), facts()), { message: /SSH server/ })
      expectSteps(t, plan(tree, observe({ ...overdue, replacing: true }), facts()), [['allocate-amphora']], false)
    },
  )
})

t.test('an active-standby pair', async t => {
  const tree = createTree({ topology: 'ACTIVE_STANDBY' })
  const backup = createAmphora(tree, { id: uuid(6, 1), role: 'BACKUP' })
  const master = createAmphora(tree, { id: uuid(6, 2), role: 'MASTER' })
  await t.test('both amphorae are allocated at once', async t => {
    const next = plan(tree, observe(), facts())
    expectSteps(t, next, [['allocate-amphora', 'allocate-amphora']], false)
    t.same(
      next.stages.flat().map(step => step.kind === 'allocate-amphora' && step.role),
      ['BACKUP', 'MASTER'],
    )
  })
  await t.test('the standby is configured first, and each amphora separately', async t => {
    const next = plan(tree, observe(master, backup), facts())
    expectSteps(t, next, [['apply'], ['apply']])
    t.match(next.stages.flat(), [{ amphoraId: backup.id }, { amphoraId: master.id }])
  })
  await t.test('nothing is configured before both addresses are known', async t => {
    const bare = { ...backup, ports: [], plugged: [] }
    expectSteps(t, plan(tree, observe(master, bare), facts()), [['attach-port']], false)
  })
  await t.test('the live amphora gets a change while the dead one is recreated', async t => {
    const dead = { ...backup, machine: 'stopped' as const, plugged: [] }
    const next = plan(tree, observe(master, dead), facts())
    expectSteps(t, next, [['apply', 'create-machine'], ['attach-port'], ['await-agent']], false)
  })
  await t.test('a change also applies while the other amphora is silent; that fault is reported last', async t => {
    const silent = { ...backup, agent: { state: 'unreachable' as const } }
    expectSteps(t, plan(tree, observe(master, silent), facts()), [['apply']], false)
    const [apply] = plan(tree, observe(master, silent), facts()).stages.flat()
    const sha256 = apply?.kind === 'apply' ? apply.desired.sha256 : null
    const done = { appliedGeneration: tree.generation, appliedSha256: sha256 }
    const settled = {
      ...master,
      ...done,
      agent: { state: 'answers' as const, haproxyVersion: '2.6.12', drain: null, ...done },
    }
    t.throws(() => plan(tree, observe(settled, silent), facts()), { code: 'amphora-unreachable' })
  })
  await t.test('two hung amphorae share the restarts left', async t => {
    const hung = (amphora: ObservedAmphora) => ({
      ...amphora,
      agent: { state: 'unreachable' as const },
      serves: false,
      silentSeconds: 99,
      heardSeconds: 99,
    })
    const next = plan(tree, observe(hung(master), hung(backup)), facts({ restartsLeft: 1 }))
    expectSteps(t, next, [['restart-machine'], ['attach-port'], ['await-agent']], false)
  })
  await t.test(
    'if the peer holds the VIP, a silent amphora is restarted even if it is unknown whether it serves',
    async t => {
      const silent = {
        ...backup,
        appliedSha256: 'x',
        agent: { state: 'unreachable' as const },
        silentSeconds: 99,
        heardSeconds: 99,
      }
      const [first] = plan(tree, observe({ ...master, heldVip: true }, silent), facts()).stages
      t.ok(first?.some(step => step.kind === 'restart-machine'))
    },
  )
  await t.test('a superfluous amphora is removed once the others serve', async t => {
    const single = createTree()
    const doomed = createAmphora(single, { id: uuid(6, 3), status: 'PENDING_DELETE' })
    const removal: Step['kind'][][] = [
      ['silence-amphora'],
      ['announce-vip'],
      ['delete-machine'],
      ['delete-ports'],
      ['delete-amphora-row'],
    ]
    expectSteps(t, plan(single, observe(doomed, createSettled(single)), facts()), removal)
    expectSteps(t, plan(single, observe(doomed, createAmphora(single)), facts()), [['apply'], ...removal])
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
