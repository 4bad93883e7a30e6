import { deepStrictEqual, ok, strictEqual } from 'node:assert'
import fc from 'fast-check'
import t from 'tap'
import {
  commandsFor,
  isExpired,
  type Leaving,
  leavingSeconds,
  serverPath,
  serversLeaving,
  serversStillLeaving,
} from '../../../amphora-agent/haproxy/leaving.js'
import { findSurplus } from '../../../amphora-agent/haproxy/old-workers.js'
import { differences } from '../../../amphora-agent/haproxy/plan-repair.js'
import { planTransition } from '../../../amphora-agent/haproxy/plan-transition.js'
import { parseServersState } from '../../../amphora-agent/haproxy/runtime/servers-state.js'
import { parseSessions } from '../../../amphora-agent/haproxy/runtime/sessions.js'
import type { HaproxyPart } from '../../../amphora-agent/protocol/desired.js'
import { backend, dump, type Model, modelOf, obey, part, server } from '../../support/inputs/haproxy-model.js'

const some = (changes: Partial<Leaving> = {}): Leaving => ({
  backend: 'p:l',
  server: server(1),
  removed: true,
  held: true,
  since: 1_000,
  delayMs: 30_000,
  ...changes,
})
const plan = (before: HaproxyPart | null, desired: HaproxyPart | null, leaving: Leaving[], hasOldWorkers = false) =>
  planTransition(before, desired, { running: true, hasOldWorkers, leaving, now: 5_000 })

t.test('leavingSeconds is the time of the last leaving server, and 0 when it is over', t => {
  const patient = some({ since: 2_000 })
  t.equal(leavingSeconds([], 5_000), 0)
  t.equal(leavingSeconds([some(), patient], 2_000), 30)
  t.equal(leavingSeconds([patient, some()], 31_500), 1)
  t.equal(leavingSeconds([some(), patient], 32_000), 0)
  t.equal(leavingSeconds([some({ removed: false })], 2_000), 0, 'a disabled server keeps its interface anyway')
  t.equal(leavingSeconds([some()], 99_000), 0, 'even though the server still exists')
  t.equal(leavingSeconds([some({ since: 90_000 })], 1_000), 30, 'the clock restarted with the machine')
  t.end()
})

t.test('removed and disabled servers leave, from the first such change on', t => {
  const both = part([backend([server(1), server(2)])])
  const one = part([backend([server(2)])])
  const disabled = part([backend([server(1, { disabled: true }), server(2)])])
  t.strictSame(serversLeaving([], both, one, 1_000), [some()])
  t.strictSame(serversLeaving([], both, disabled, 1_000), [some({ removed: false })])
  t.strictSame(serversLeaving([], both, null, 1_000).map(serverPath), ['p:l/m1', 'p:l/m2'])
  t.strictSame(serversLeaving([], disabled, disabled, 1_000), [], 'a server that was already disabled does not leave')
  t.strictSame(
    serversLeaving([some({ removed: false })], disabled, one, 9_000),
    [some()],
    'the time of the first of several changes counts',
  )
  t.strictSame(serversLeaving([some()], one, both, 9_000), [], 'a server that comes back does not leave')
  const hasty = part([{ ...backend([server(2)]), deregistrationDelay: 0 }])
  t.strictSame(serversLeaving([some()], one, hasty, 9_000), [some({ delayMs: 0 })], 'the pool’s new delay applies')
  t.end()
})

t.test('a leaving server may return, but a changed one needs a reload', t => {
  const one = part([backend([server(2)])])
  const both = part([backend([server(1, { weight: 7 }), server(2)])])
  t.match(plan(one, both, [some()]), {
    kind: 'runtime',
    commands: [{ text: 'set server p:l/m1 weight 7' }, { text: 'set server p:l/m1 state ready' }],
    leaving: [],
  })
  const other = part([backend([server(1, { port: 81 }), server(2)])])
  t.match(plan(one, other, [some()]), { kind: 'reload', reason: /m1 changed/ }, 'it may not return with another port')
  const heir = part([backend([server(1, { name: 'heir' }), server(2)])])
  t.match(plan(one, heir, [some()]), { kind: 'reload', reason: /reuses the number of server m1/ })
  t.match(
    plan(one, heir, [some({ held: false })]),
    { kind: 'runtime' },
    'it may return once the current worker no longer has it',
  )
  t.match(plan(both, null, []), { kind: 'retire', leaving: [{ held: false }, { held: false }] })
  t.match(plan(null, null, [some()], true), { kind: 'unchanged' }, 'nothing changes while old workers run')
  t.match(plan(null, null, [], false), { kind: 'stop' })
  const states = parseServersState(dump(modelOf(part([backend([server(1, { disabled: true }), server(2)])]))))
  t.strictSame(differences(one, states, [some()]), [])
  t.match(differences(one, states, []), [/m1 is unexpected/])
  const serving = parseServersState(dump(modelOf(both)))
  t.match(differences(one, serving, [some()]), [/m1 is leaving but still in service/])
  t.end()
})

t.test('show sess is parsed', t => {
  const text = [
    '0x55556efb28c0: proto=tcpv4 src=127.0.0.1:41514 fe=f be=p:l srv=m1 ts=00 epoch=0 age=1s',
    '0x55556f0cd050: proto=sockpair src=unix:2 fe=GLOBAL be=<NONE> srv=<none> ts=00 epoch=0 age=0s',
    'nonsense',
  ].join('\n')
  t.strictSame(parseSessions(text), [
    { pointer: '0x55556efb28c0', backend: 'p:l', server: 'm1' },
    { pointer: '0x55556f0cd050', backend: '<NONE>', server: '<none>' },
  ])
  t.end()
})

t.test('the oldest old workers end when they are too many or too large', t => {
  const workers = [3, 1, 2].map(startTime => ({ pid: startTime + 10, startTime, memoryKib: 1024 }))
  const surplus = (most: number, memoryMib: number) => findSurplus(workers, { most, memoryMib }).map(({ pid }) => pid)
  t.strictSame(surplus(3, 3), [])
  t.strictSame(surplus(2, 3), [11])
  t.strictSame(surplus(3, 1), [11, 12])
  t.strictSame(surplus(1, 1), [11, 12])
  t.end()
})

const DELAYS = [0, 1, 30] as const
const servers = fc.uniqueArray(
  fc.record({
    number: fc.integer({ min: 1, max: 4 }),
    weight: fc.integer({ min: 0, max: 256 }),
    disabled: fc.boolean(),
    port: fc.constantFrom(80, 80, 80, 81),
  }),
  { selector: ({ number }) => number },
)
const pool = fc.record({
  servers,
  delay: fc.constantFrom(...DELAYS),
  dynamic: fc.constantFrom(true, true, true, false),
})
const state = fc.option(
  fc.record({ pools: fc.array(pool, { maxLength: 2 }), skeleton: fc.constantFrom('a', 'a', 'a', 'b') }),
  { freq: 6 },
)
const steps = fc.array(fc.record({ state, pauseMs: fc.constantFrom(0, 100, 900, 5_000, 40_000) }), { maxLength: 12 })

function desiredOf(desired: typeof state extends fc.Arbitrary<infer T> ? T : never): HaproxyPart | null {
  if (desired === null) return null
  const backends = desired.pools.map(({ servers: each, delay, dynamic }, i) => ({
    name: `pool${i}:listener`,
    dynamic,
    deregistrationDelay: delay,
    servers: each.map(({ number, ...rest }) => server(number, rest)),
  }))
  return part(backends, desired.skeleton)
}

type Connection = { path: string; worker: Model; leftAt: number | null; delayMs: number; cut: boolean }

t.test('property: any sequence of changes reaches the desired state and cuts no connection early', t => {
  fc.assert(
    fc.property(steps, sequence => {
      let now = 0
      let applied: HaproxyPart | null = null
      let leaving: Leaving[] = []
      let worker: Model | null = null
      let oldWorkers: Model[] = []
      const connections: Connection[] = []
      const open = (in_: Model) => connections.some(one => one.worker === in_ && !one.cut)

      /** Works as the drain does. */
      const drain = () => {
        const closed = new Set<string>()
        for (const one of leaving.filter(each => isExpired(each, now))) {
          for (const connection of connections.filter(({ path, cut }) => path === serverPath(one) && !cut)) {
            ok(connection.leftAt !== null, 'no connection is cut on a server that stays')
            ok(now >= connection.leftAt + connection.delayMs, `${now} is too early`)
            connection.cut = true
            closed.add(serverPath(one))
          }
        }
        const present = worker
        const deleted = leaving.filter(one => {
          if (!one.removed || !one.held || present === null) return false
          if (connections.some(each => each.worker === present && each.path === serverPath(one) && !each.cut))
            return false
          strictEqual(obey(present, commandsFor(one).remove), 'Server deleted.')
          return true
        })
        const hasOldWorkers = oldWorkers.length > 0
        leaving = serversStillLeaving(leaving, now, {
          deleted: new Set(deleted.map(serverPath)),
          closed,
          hasOldWorkers,
        })
        oldWorkers = oldWorkers.filter(open)
      }

      for (const { state: next, pauseMs } of sequence) {
        now += pauseMs
        drain()
        const desired = desiredOf(next)
        const facts = { running: worker !== null, hasOldWorkers: oldWorkers.length > 0, leaving, now }
        const way = planTransition(applied, desired, facts)
        if (way.kind === 'reload' || way.kind === 'retire') {
          if (worker !== null) oldWorkers.push(worker)
          worker = desired === null ? new Map() : modelOf(desired)
        } else if (way.kind === 'start') worker = desired === null ? null : modelOf(desired)
        else if (way.kind === 'stop') worker = null
        else if (way.kind === 'runtime' && worker !== null) {
          for (const { text, expect } of way.commands) strictEqual(obey(worker, text), expect, text)
        }
        leaving = way.leaving
        applied = desired
        if (desired !== null && worker !== null) {
          deepStrictEqual(differences(desired, parseServersState(dump(worker)), leaving), [])
        }
        for (const connection of connections) {
          const [backendName] = connection.path.split('/')
          const its = desired?.backends.find(({ name }) => name === backendName)
          const serves = its?.servers.some(each => `${backendName}/${each.name}` === connection.path && !each.disabled)
          if (serves) connection.leftAt = null
          else connection.leftAt ??= now
          if (its !== undefined) connection.delayMs = its.deregistrationDelay * 1000
        }
        for (const { name, servers: each, deregistrationDelay } of desired?.backends ?? []) {
          for (const { name: serverName, disabled } of each) {
            const path = `${name}/${serverName}`
            if (!disabled && worker !== null) {
              connections.push({ path, worker, leftAt: null, delayMs: deregistrationDelay * 1000, cut: false })
            }
          }
        }
      }
      now += 3_600_000
      drain()
      drain()
      strictEqual(
        connections.filter(({ leftAt, cut }) => leftAt !== null && !cut).length,
        0,
        'no connection stays too long',
      )
      deepStrictEqual(leaving, [])
    }),
    { numRuns: 500 },
  )
  t.end()
})
