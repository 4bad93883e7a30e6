import { strictEqual } from 'node:assert'
import fc from 'fast-check'
import t from 'tap'
import { downMemberKeys, memberKey } from '../../../amphora-agent/haproxy/known-down.js'
import { differences } from '../../../amphora-agent/haproxy/plan-repair.js'
import { joinCommands, planTransition } from '../../../amphora-agent/haproxy/plan-transition.js'
import { parseProcTable } from '../../../amphora-agent/haproxy/runtime/proc-table.js'
import { parseServersState } from '../../../amphora-agent/haproxy/runtime/servers-state.js'
import {
  completeChecks,
  parseFailedChecks,
  parseServerLimits,
  parseStat,
} from '../../../amphora-agent/haproxy/runtime/stat.js'
import { serverStateFile } from '../../../amphora-agent/haproxy/server-state-file.js'
import { significantOutput } from '../../../amphora-agent/haproxy/validate.js'
import type { HaproxyPart, Server } from '../../../amphora-agent/protocol/desired.js'
import { backend, dump, modelOf, obey, part, server } from '../../support/inputs/haproxy-model.js'

const plan = (before: HaproxyPart | null, desired: HaproxyPart | null, running = true) =>
  planTransition(before, desired, { running, hasOldWorkers: false, leaving: [], now: 0 })
const texts = (before: Server[], desired: Server[], dynamic = true) => {
  const transition = plan(part([backend(before, dynamic)]), part([backend(desired, dynamic)]))
  return transition.kind === 'runtime' ? transition.commands.map(({ text }) => text) : transition
}

t.test('a transition starts, retires, stops or reloads HAProxy, or leaves it alone', t => {
  const some = part([backend([server(1)])])
  t.match(plan(null, some, false), { kind: 'start' })
  t.match(plan(some, some, false), { kind: 'start' }, 'even if HAProxy should be running already')
  t.match(plan(some, null), { kind: 'retire' }, 'it stops only after old connections have ended')
  t.match(plan(null, null), { kind: 'stop' })
  t.match(plan(some, null, false), { kind: 'unchanged' })
  t.match(plan(null, null, false), { kind: 'unchanged' })
  t.match(plan(some, some), { kind: 'unchanged' })
  t.match(plan(null, some), { kind: 'reload', reason: /configuration is unknown/ })
  t.end()
})

t.test('server changes become runtime commands', t => {
  t.strictSame(
    texts([], [server(7, { address: 'fd00::7', weight: 3, backup: true })]),
    [
      'add server p:l/m7 [fd00::7]:80 id 7 weight 3 backup check inter 5s',
      'enable health p:l/m7',
      'enable server p:l/m7',
    ],
    'a server joins',
  )
  t.strictSame(texts([], [server(7, { disabled: true, options: [] })]), [
    'add server p:l/m7 192.0.2.1:80 id 7 weight 1',
  ])
  t.strictSame(
    texts([], [server(7, { options: ['cookie', 'ab', 'agent-check', 'agent-send', 'ping,p:l:m7,192.0.2.1,3,2,3!'] })]),
    [
      'add server p:l/m7 192.0.2.1:80 id 7 weight 1 cookie ab agent-check agent-send ping,p:l:m7,192.0.2.1,3,2,3!',
      'enable agent p:l/m7',
      'enable server p:l/m7',
    ],
    'a pinged server joins',
  )
  t.strictSame(texts([server(1)], [server(1, { weight: 0 })]), ['set server p:l/m1 weight 0'])
  t.strictSame(
    texts([server(1)], [server(1, { weight: 2 })], false),
    ['set server p:l/m1 weight 2'],
    'even in a backend that is not dynamic',
  )
  t.strictSame(texts([server(1)], [server(1, { disabled: true })]), ['set server p:l/m1 state maint'])
  t.strictSame(texts([server(1, { disabled: true })], [server(1)]), ['set server p:l/m1 state ready'])
  t.strictSame(texts([server(1), server(2)], [server(3)]), [
    'add server p:l/m3 192.0.2.1:80 id 3 weight 1 check inter 5s',
    'enable health p:l/m3',
    'enable server p:l/m3',
    'set server p:l/m1 state maint',
    'set server p:l/m2 state maint',
  ])
  t.strictSame(
    texts([server(1), server(2, { disabled: true })], [server(1, { disabled: true }), server(2)]),
    ['set server p:l/m2 state ready', 'set server p:l/m1 state maint'],
    'the new server is ready before the old one stops',
  )
  t.end()
})

t.test('a reload has a reason', t => {
  const reasons: [HaproxyPart, HaproxyPart, RegExp][] = [
    [part([backend([])], 'timeout 1'), part([backend([])], 'timeout 2'), /more than pool members/],
    [part([backend([server(1)])]), part([backend([server(1, { options: ['check'] })])]), /more than weight and state/],
    [part([backend([server(1)])]), part([backend([server(1, { port: 81 })])]), /more than weight and state/],
    [
      part([backend([server(1)])]),
      part([backend([server(1, { address: '192.0.2.2' })])]),
      /more than weight and state/,
    ],
    [part([backend([server(1)])]), part([backend([server(1, { backup: true })])]), /more than weight and state/],
    [part([backend([server(1)])]), part([backend([server(1, { number: 9 })])]), /more than weight and state/],
    [part([backend([], false)]), part([backend([server(1)], false)]), /cannot join/],
    [part([backend([server(1)], false)]), part([backend([], false)]), /cannot leave/],
    [part([backend([server(1)])]), part([backend([server(1, { name: 'other' })])]), /reuses the number of server m1/],
    [part([backend([])]), part([backend([server(1, { options: ['check', 'sni', 'a;b'] })])]), /cannot take/],
    [part([backend([])]), part([backend([server(1, { options: ['check\nshutdown'] })])]), /cannot take/],
    [part([backend([])]), part([backend([server(1, { name: 'a b' })])]), /cannot take/],
    [part([backend([])]), part([backend([server(1, { options: ['<<'] })])]), /cannot take/],
  ]
  for (const [before, desired, reason] of reasons)
    t.match(plan(before, desired), { kind: 'reload', reason }, String(reason))
  t.strictSame(texts([server(1)], [server(1, { disabled: true })], false), ['set server p:l/m1 state maint'])
  t.end()
})

t.test('connection limits of listeners change at runtime', t => {
  const limited = (maxconn: number, sha256 = `${maxconn}`) => ({
    ...part([backend([server(1)])]),
    sha256,
    frontends: [
      { name: 'l1', maxconn },
      { name: 'l2', maxconn: 7 },
    ],
  })
  t.match(plan(limited(5), limited(9)), {
    kind: 'runtime',
    commands: [{ text: 'set maxconn frontend l1 9', expect: '' }],
  })
  const untold = { ...limited(5), frontends: [] }
  t.match(
    plan(untold, limited(9)),
    { kind: 'reload', reason: /connection limits of the listeners are unknown/ },
    'after an older agent applied the configuration',
  )
  t.end()
})

t.test('commands share lines, but servers leave in a later line than those that join', t => {
  const lines = (before: Server[], desired: Server[]) => {
    const transition = plan(part([backend(before)]), part([backend(desired)]))
    return transition.kind === 'runtime' ? joinCommands(transition.commands) : []
  }
  t.strictSame(lines([server(1), server(2)], [server(2, { weight: 3 }), server(7)]), [
    {
      text: 'add server p:l/m7 192.0.2.1:80 id 7 weight 1 check inter 5s;enable health p:l/m7;enable server p:l/m7;set server p:l/m2 weight 3',
      expect: 'New server registered.',
    },
    { text: 'set server p:l/m1 state maint', expect: '' },
  ])
  const many = Array.from({ length: 300 }, (_, number) => server(number + 1))
  const long = lines([], many)
  t.ok(long.length > 1 && long.every(({ text }) => text.length < 8_200), 'no line exceeds HAProxy’s limit')
  t.equal(long.flatMap(({ text }) => text.split(';')).length, 900)
  t.end()
})

t.test('property: the planned commands turn one set of servers into another', t => {
  const servers = fc.uniqueArray(
    fc.record(
      {
        number: fc.integer({ min: 1, max: 8 }),
        weight: fc.integer({ min: 0, max: 256 }),
        disabled: fc.boolean(),
      },
      { noNullPrototype: true },
    ),
    { selector: ({ number }) => number },
  )
  const build = (sets: { number: number; weight: number; disabled: boolean }[][]) =>
    part(
      sets.map((set, i) => ({
        name: `pool${i}:listener`,
        dynamic: true,
        deregistrationDelay: 30,
        servers: set.map(({ number, weight, disabled }) =>
          // Derived from the number, so that a remaining server can be adjusted at runtime.
          server(number, {
            weight,
            disabled,
            backup: number % 2 === 0,
            address: number % 3 === 0 ? `fd00::${number}` : `192.0.2.${number}`,
            options: number % 4 === 0 ? [] : ['check'],
          }),
        ),
      })),
    )
  fc.assert(
    fc.property(fc.array(fc.tuple(servers, servers), { minLength: 1, maxLength: 3 }), pairs => {
      const before = build(pairs.map(([one]) => one))
      const desired = build(pairs.map(([, other]) => other))
      const transition = plan(before, desired)
      if (before.sha256 === desired.sha256) return transition.kind === 'unchanged'
      if (transition.kind !== 'runtime') return false
      const model = modelOf(before)
      for (const command of transition.commands) strictEqual(obey(model, command.text), command.expect, command.text)
      strictEqual(differences(desired, parseServersState(dump(model)), transition.leaving).join(), '')
      return true
    }),
    { numRuns: 300 },
  )
  t.end()
})

t.test('differences between the running and the desired servers are named', t => {
  const desired = part([backend([server(1), server(2, { disabled: true })])])
  const states = (changes: Partial<Server>[]) => {
    const servers = changes.map((change, i) => server(i + 1, { disabled: i === 1, ...change }))
    return parseServersState(dump(modelOf(part([backend(servers)]))))
  }
  t.strictSame(differences(desired, states([{}, {}])), [])
  t.match(differences(desired, states([{ weight: 9 }, {}])), [/m1 has weight 9/])
  t.match(differences(desired, states([{ address: '192.0.2.9' }, {}])), [/m1 has address/])
  t.match(differences(desired, states([{ port: 1 }, {}])), [/m1 has port 1/])
  t.match(differences(desired, states([{ disabled: true }, { disabled: false }])), [
    /m1 is disabled/,
    /m2 is not disabled/,
  ])
  t.match(differences(desired, states([{}])), [/m2 is missing/])
  t.match(differences(desired, states([{}, {}, {}])), [/m3 is unexpected/])
  const foreign = parseServersState('3 internal 1 s 192.0.2.1 2 0 1 1 9 1 0 2 6 0 0 1 - 80 - 0 0 - - 0')
  t.strictSame(differences(desired, [...states([{}, {}]), ...foreign]), [], 'other backends are ignored')
  t.end()
})

t.test('the server-state file keeps only unchanged servers and no maintenance state', t => {
  const before = part([backend([server(1), server(2), server(3), server(4), server(5)])])
  const desired = part([
    backend([server(1), server(2, { weight: 5 }), server(3, { disabled: true }), server(4), server(6)]),
  ])
  const line = (number: number, operational: number, admin: number) =>
    `3 p:l ${number} m${number} 192.0.2.1 ${operational} ${admin} 1 1 9 8 2 0 6 0 0 1 - 80 - 0 0 - - 0`
  const text = ['1', '# header', line(1, 0, 0), line(2, 0, 0), line(3, 0, 0), line(4, 2, 4), line(5, 2, 0), ''].join(
    '\n',
  )
  const file = (applied: HaproxyPart | null, dump: string, down: string[] = []) =>
    serverStateFile({ applied, dump }, desired, new Set(down))
  t.equal(file(before, text), ['1', line(1, 0, 0), line(4, 2, 0), ''].join('\n'))
  t.equal(file(null, text), ['1', ''].join('\n'))
  t.equal(file(before, ''), ['1', ''].join('\n'))
  t.equal(file(before, line(1, 0, 1)), ['1', ''].join('\n'), 'maintenance comes from the configuration only')
  t.end()
})

t.test('a member that was down starts down, even under a new name or monitor', t => {
  const desired = part([
    backend([
      server(7),
      server(8, { address: '192.0.2.8' }),
      server(9, { options: [] }),
      server(6, { disabled: true }),
    ]),
  ])
  const down = new Set([memberKey('p:other', '192.0.2.1', 80)])
  const [version, first, ...rest] = serverStateFile(null, desired, down).split('\n')
  t.equal(version, '1')
  const expected = { backend: 'p:l', name: 'm7', number: 7, operational: 'stopped', admin: 0, weight: 1, port: 80 }
  t.match(parseServersState(first ?? ''), [expected])
  t.strictSame(rest, [''], 'no other, unmonitored or disabled member')
  t.strictSame([...downMemberKeys(parseServersState(first ?? ''))], [...down])
  t.end()
})

t.test('show proc is parsed', t => {
  const text = `#<PID>          <type>          <reloads>       <uptime>        <version>
9               master          2 [failed: 1]   0d00h00m02s     2.6.12-1+deb12u4
# workers
72              worker          1               0d00h00m02s     2.6.12-1+deb12u4
# old workers
31              worker          2               0d00h00m09s     2.6.12-1+deb12u4
18              worker          3               0d00h00m09s     2.6.12-1+deb12u4
# programs
`
  t.strictSame(parseProcTable(text), { masterPid: 9, reloads: 2, failed: 1, workerPid: 72, oldWorkerPids: [31, 18] })
  t.equal(parseProcTable(''), null)
  t.match(parseProcTable(text.replace(/^72.*\n/m, '')), { workerPid: null, oldWorkerPids: [31, 18] })
  t.end()
})

t.test('show stat is parsed', t => {
  const csv = [
    '# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,ereq,econ,eresp,status,last_chk',
    'l1,FRONTEND,,,3,4,2000,10,100,200,4,,,OPEN,',
    'p:l,m1,0,0,0,0,7,0,0,0,,1,2,UP,"a ""quoted"", text"',
    'p:l,m2,0,0,0,0,,0,0,0,,1,2,UP,',
    'p:l,BACKEND,0,0,1,2,200,9,90,180,,5,6,UP,"x,y"',
    '',
  ].join('\n')
  t.strictSame(parseStat(csv), [
    {
      name: 'l1',
      kind: 'frontend',
      status: 'OPEN',
      limit: 2000,
      counters: { bytesIn: 100, bytesOut: 200, activeConnections: 3, totalConnections: 10, requestErrors: 4 },
    },
    {
      name: 'p:l',
      kind: 'backend',
      status: 'UP',
      limit: 200,
      counters: { bytesIn: 90, bytesOut: 180, activeConnections: 1, totalConnections: 9, requestErrors: 11 },
    },
  ])
  t.strictSame(parseStat(''), [])
  t.strictSame(parseServerLimits(csv), new Map([['p:l/m1', 7]]))
  t.end()
})

t.test('failed checks are parsed, without what a member wrote', t => {
  const csv = [
    '# pxname,svname,status,check_status,check_code,check_duration,last_chk',
    'p:l,up,UP,L7OK,200,1,OK',
    'p:l,refused,DOWN,L4CON,,0,Connection refused',
    'p:l,slow,DOWN,* L7TOUT,,0,',
    'p:l,unkind,DOWN 1/2,L7STS,503,5,"Go ""away"", DOWN,L4CON\t\u0007é"',
    'p:l,odd,DOWN,L9XXX,1,1,',
    'p:l,code,DOWN,L7STS,-503,1,x',
    `p:l,wordy,DOWN,SOCKERR,,1,"${'é x'.repeat(100)}"`,
    'p:l,BACKEND,DOWN,,,,',
  ].join('\n')
  const failed = parseFailedChecks(csv)
  t.same(failed.get('p:l/wordy')?.check.words, Array(22).fill('x').join('  '))
  failed.delete('p:l/wordy')
  t.strictSame(
    failed,
    new Map([
      ['p:l/refused', { check: { status: 'L4CON', code: 0, words: 'Connection refused' }, isPartial: false }],
      ['p:l/unkind', { check: { status: 'L7STS', code: 503, words: '' }, isPartial: false }],
      ['p:l/code', { check: { status: 'L7STS', code: 0, words: '' }, isPartial: false }],
      ['p:l/slow', { check: { status: 'L7TOUT', code: 0, words: '' }, isPartial: false }],
    ]),
  )
  const running = csv.replace('DOWN,L4CON,,0,Connection refused', 'DOWN,* L4CON,,0,').replace('L7STS,503', '* L7STS,')
  const partial = parseFailedChecks(running)
  t.match(partial.get('p:l/refused'), { check: { words: '' }, isPartial: true })
  t.strictSame(
    completeChecks(failed, partial).get('p:l/refused'),
    failed.get('p:l/refused'),
    'a running check hides it',
  )
  t.strictSame(completeChecks(failed, partial).get('p:l/unkind'), failed.get('p:l/unkind'))
  const other = new Map([
    ['p:l/refused', { check: { status: 'SOCKERR', code: 0, words: '' }, isPartial: true } as const],
  ])
  t.strictSame(completeChecks(failed, other), other, 'another result is another cause')
  t.end()
})

t.test('parsers of HAProxy’s answers never throw', t => {
  const pieces = fc.array(
    fc.constantFrom('1', '#', ' ', '\n', ',', '"', 'FRONTEND', 'worker', 'master', '[failed: 1]', 'x'),
  )
  const text = fc.oneof(
    fc.string(),
    pieces.map(words => words.join('')),
    pieces.map(words => words.join(' ')),
  )
  fc.assert(
    fc.property(text, value => {
      parseStat(value)
      parseServerLimits(value)
      parseFailedChecks(`# pxname,svname,status,check_status,last_chk\n${value}\nb,s,DOWN,L4CON,${value}`)
      parseServersState(value)
      parseProcTable(value)
      return true
    }),
    { numRuns: 500 },
  )
  t.end()
})

t.test('HAProxy’s alerts are extracted from its output', t => {
  t.equal(significantOutput('[NOTICE] a\n[ALERT] b\n[WARNING] c\n[ALERT] d\n'), '[ALERT] b\n[ALERT] d')
  t.equal(significantOutput(' only this \n\n'), 'only this')
  t.equal(significantOutput(`[ALERT] ${'x'.repeat(10_000)}`).length, 4_000)
  t.end()
})
