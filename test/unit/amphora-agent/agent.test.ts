import { deepStrictEqual } from 'node:assert'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { NO_DATAGRAMS } from '../../../amphora-agent/datagrams/states.js'
import { parseServersState } from '../../../amphora-agent/haproxy/runtime/servers-state.js'
import type { ProxyRow } from '../../../amphora-agent/haproxy/runtime/stat.js'
import { recentLines } from '../../../amphora-agent/log/recent-lines.js'
import { canonical, networkOf } from '../../../amphora-agent/network/address.js'
import type { Observed } from '../../../amphora-agent/network/observed.js'
import { planInterfaces } from '../../../amphora-agent/network/plan-interfaces.js'
import type { Interface } from '../../../amphora-agent/protocol/desired.js'
import { createFrameDecoder, encodeFrame, FrameError } from '../../../amphora-agent/protocol/frames.js'
import type { Counters } from '../../../amphora-agent/protocol/heartbeat.js'
import { compatibility } from '../../../amphora-agent/protocol/version.js'
import { isServed } from '../../../amphora-agent/reconcile/sshd.js'
import { type CounterState, observe, totalOf } from '../../../amphora-agent/statistics/counters.js'
import { changedSince, type Snapshot, takeSnapshot } from '../../../amphora-agent/statistics/snapshot.js'
import { BACKEND, desire, server } from '../../support/worlds/amphora-desired.js'

const EMPTY: CounterState = { epoch: '00'.repeat(8), ended: {}, workers: {} }
const count = (n: number, active = 0): Counters => ({
  bytesIn: n,
  bytesOut: 2 * n,
  activeConnections: active,
  totalConnections: n,
  requestErrors: 0,
})
const row = (name: string, n: number, active = 0, status = 'OPEN'): ProxyRow => ({
  name,
  kind: 'frontend',
  status,
  limit: 0,
  counters: count(n, active),
})

t.test('a controller works with agents that are one version of the protocol older or newer', t => {
  const judged = [1, 2, 3, 4, 5].map(agent => compatibility(agent, 3))
  t.same(judged, ['too-old', 'compatible', 'compatible', 'compatible', 'too-new'])
  t.end()
})

t.test('frames survive any fragmentation of the stream', t => {
  fc.assert(
    fc.property(fc.array(fc.jsonValue(), { maxLength: 6 }), fc.array(fc.nat(40), { maxLength: 30 }), (values, cuts) => {
      const stream = Buffer.concat(values.map(encodeFrame))
      const decode = createFrameDecoder()
      const decoded: unknown[] = []
      let at = 0
      for (const size of cuts) {
        decoded.push(...decode(stream.subarray(at, at + size)))
        at += size
      }
      decoded.push(...decode(stream.subarray(at)))
      deepStrictEqual(decoded, JSON.parse(JSON.stringify(values)))
      return true
    }),
    { numRuns: 200 },
  )
  t.end()
})

t.test('oversized frames and frames that are not JSON end the stream', t => {
  t.throws(() => createFrameDecoder(10)(encodeFrame('x'.repeat(20))), { name: 'FrameError' })
  t.strictSame(createFrameDecoder(10)(encodeFrame('x'.repeat(8))), ['x'.repeat(8)])
  t.throws(() => createFrameDecoder()(Buffer.from([0, 0, 0, 2, 123, 123])), { name: 'FrameError', message: /not JSON/ })
  t.throws(() => createFrameDecoder()(Buffer.from([255, 255, 255, 255])), { name: 'FrameError', message: /exceeds/ })
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), bytes => {
      try {
        createFrameDecoder()(Buffer.from(bytes))
        return true
      } catch (error) {
        return error instanceof FrameError
      }
    }),
  )
  t.end()
})

t.test('counters', t => {
  t.test('add up over the old and the new worker, and remain when the old one ends', t => {
    let state = observe(EMPTY, new Map([['a', [row('l', 10, 2)]]]), new Set(['a']))
    state = observe(
      state,
      new Map([
        ['a', [row('l', 15, 1)]],
        ['b', [row('l', 4, 3)]],
      ]),
      new Set(['a', 'b']),
    )
    t.strictSame(totalOf(state, 'l'), count(19, 4))
    state = observe(state, new Map([['b', [row('l', 5, 1)]]]), new Set(['b']))
    t.strictSame(totalOf(state, 'l'), count(20, 1), 'connections of an ended worker are not active')
    t.equal(state.epoch, EMPTY.epoch)
    t.end()
  })

  t.test('keep their values when a worker could not be read', t => {
    const state = observe(EMPTY, new Map([['a', [row('l', 10)]]]), new Set(['a']))
    t.strictSame(totalOf(observe(state, new Map(), new Set(['a'])), 'l'), count(10))
    t.end()
  })

  t.test('continue for an object that leaves the configuration and returns', t => {
    let state = observe(EMPTY, new Map([['a', [row('l', 10)]]]), new Set(['a']))
    state = observe(state, new Map([['b', [row('other', 1)]]]), new Set(['b']))
    state = observe(state, new Map([['c', [row('l', 1)]]]), new Set(['c']))
    t.strictSame(totalOf(state, 'l'), count(11))
    t.end()
  })

  t.test('property: no total ever decreases, whatever workers start, count, fail to answer and end', t => {
    const step = fc.record({
      start: fc.boolean(),
      end: fc.boolean(),
      clear: fc.integer({ min: 0, max: 9 }),
      added: fc.nat(1000),
      unread: fc.boolean(),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), steps => {
        let state = EMPTY
        let served = 0
        let last = 0
        const workers = new Map<string, number>([['w0', 0]])
        steps.forEach(({ start, end, clear, added, unread }, i) => {
          if (start) workers.set(`w${i + 1}`, 0)
          if (end && workers.size > 1) workers.delete([...workers.keys()][0]!)
          const present = [...workers.keys()].at(-1)!
          const wiped = clear === 0
          workers.set(present, wiped ? 0 : workers.get(present)! + added)
          if (!wiped) served += added
          const readings = unread ? new Map() : new Map([...workers].map(([key, n]) => [key, [row('l', n)]]))
          state = observe(state, readings, new Set(workers.keys()))
          const { totalConnections } = totalOf(state, 'l')
          if (totalConnections < last || totalConnections > served) throw new Error(`${totalConnections} after ${last}`)
          last = totalConnections
        })
        return true
      }),
      { numRuns: 300 },
    )
    t.end()
  })
  t.end()
})

const REFUSED = { status: 'L4CON' as const, code: 0, words: 'Connection refused' }

t.test('a snapshot has the states of members, listeners and pools', t => {
  const servers = [1, 2, 3, 4, 5, 6].map(number => server(number, number >= 5 ? { options: [] } : {}))
  const desired = desire({ generation: 1, servers })
  const line = (number: number, operational: number, admin: number, weight: number) =>
    `3 ${BACKEND} ${number} member-${number} 127.0.0.1 ${operational} ${admin} ${weight} 1 9 8 2 0 6 0 0 1 - 80 - 0 0 - - 0`
  const lines = [line(1, 2, 0, 1), line(2, 0, 0, 1), line(3, 2, 0, 0), line(4, 0, 1, 1), line(5, 2, 0, 1)]
  const observation = {
    proxies: [row('listener-1', 5, 0, 'FULL'), { ...row(BACKEND, 4, 0, 'UP'), kind: 'backend' as const }],
    servers: parseServersState(lines.join('\n')),
    failedChecks: new Map([1, 2].map(number => [`${BACKEND}/member-${number}`, REFUSED])),
  }
  const snapshot = takeSnapshot(desired, { ...observation, datagrams: NO_DATAGRAMS }, () => count(3))
  t.strictSame(snapshot, {
    listeners: [{ state: 'FULL', counters: count(3) }],
    pools: [
      {
        ...{ state: 'UP', counters: count(3) },
        members: ['UP', 'DOWN', 'DRAIN', 'MAINT', 'NO_CHECK', 'UNKNOWN'],
        checks: [{ check: REFUSED, members: [1] }],
      },
    ],
  })
  const silent = takeSnapshot(
    desired,
    { proxies: [], servers: [], failedChecks: new Map(), datagrams: NO_DATAGRAMS },
    () => count(3),
  )
  t.match(silent, { listeners: [{ state: 'DOWN' }], pools: [{ state: 'DOWN', members: Array(6).fill('UNKNOWN') }] })

  t.test('only changes are reported again', t => {
    const same = { listeners: [], pools: [], checks: [] }
    const counted: Snapshot = { ...snapshot, listeners: [{ state: 'FULL', counters: count(4) }] }
    t.strictSame(changedSince(snapshot, snapshot, 'anything'), same)
    t.strictSame(changedSince(snapshot, counted, 'states'), same)
    t.match(changedSince(snapshot, counted, 'anything'), { listeners: [{ index: 0, counters: count(4) }], pools: [] })
    t.match(changedSince(snapshot, silent, 'states'), {
      listeners: [{ index: 0 }],
      pools: [{ index: 0, firstMember: 0 }],
    })
    const checks = [{ pool: 0, check: REFUSED, members: [1] }]
    t.match(changedSince(null, snapshot, 'states'), { listeners: [{ index: 0 }], pools: [{ index: 0 }], checks })
    const otherwise = { ...REFUSED, status: 'L4TOUT' as const, words: '' }
    const timedOut = {
      ...snapshot,
      pools: snapshot.pools.map(pool => ({ ...pool, checks: [{ check: otherwise, members: [1] }] })),
    }
    t.match(changedSince(snapshot, timedOut, 'states'), { pools: [{ index: 0 }], checks: [{ check: otherwise }] })
    t.end()
  })
  t.end()
})

t.test('addresses and networks are written as the kernel shows them', t => {
  t.equal(canonical('FD00:0:0:0::0100'), 'fd00::100')
  t.equal(canonical('192.0.2.1'), '192.0.2.1')
  t.equal(networkOf('192.0.2.77/26'), '192.0.2.64/26')
  t.equal(networkOf('255.255.255.255/1'), '128.0.0.0/1')
  t.equal(networkOf('10.0.0.1/0'), '0.0.0.0/0')
  t.equal(networkOf('2001:DB8::FFFF/112'), '2001:db8::/112')
  t.equal(networkOf('fe80::1:2:3:4/65'), 'fe80::/65')
  t.equal(networkOf('fd00::1/0'), '::/0')
  t.end()
})

t.test('a network in the desired state needs no change, however it was written', t => {
  const nic: Interface = {
    mac: '02:00:00:00:00:01',
    name: 'vip0',
    mtu: 1500,
    addresses: ['10.0.0.5/24', 'FD00::0005/64'],
    routes: [{ destination: '10.9.0.7/16', gateway: '10.0.0.1' }],
    vips: [{ address: 'FD00::0100', subnet: 'fd00::9/64', gateway: 'FD00:0::1' }],
  }
  const device = 'vip0'
  const observed: Observed = {
    links: [{ name: device, mac: nic.mac, mtu: 1500, up: true as const, carrier: true }],
    addresses: [
      { device, family: 4, address: '10.0.0.5', prefix: 24 },
      { device, family: 6, address: 'fd00::5', prefix: 64 },
      { device, family: 6, address: 'fd00::100', prefix: 128 },
    ],
    routes: [
      { device, family: 4, destination: '10.9.0.0/16', gateway: '10.0.0.1', table: 'main', source: null },
      { device, family: 6, destination: 'fd00::/64', gateway: null, table: '100', source: null },
      { device, family: 6, destination: '::/0', gateway: 'fd00::1', table: '100', source: null },
      // Not ours: keepalived's table, another interface.
      { device, family: 4, destination: '0.0.0.0/0', gateway: '10.0.0.1', table: '1', source: null },
      { device: 'mgmt0', family: 4, destination: '10.8.0.0/16', gateway: '10.7.0.1', table: 'main', source: null },
    ],
    connected: [
      { device, destination: '10.0.0.0/24' },
      { device, destination: 'fd00::/64' },
    ],
    rules: [{ family: 6, priority: 100, source: 'fd00::100', table: '100' }],
  }
  t.strictSame(planInterfaces([nic], observed, [], 'us', false), {
    renames: [],
    links: [],
    additions: [],
    removals: [],
    announce: [],
  })
  const additionsOf = (network: Observed) =>
    planInterfaces([nic], network, [], 'us', false).additions.map(({ line }) => line)
  t.strictSame(
    additionsOf({ ...observed, connected: [] }),
    [
      'route replace 10.0.0.0/24 dev vip0 proto kernel scope link src 10.0.0.5',
      'route replace fd00::/64 dev vip0 proto kernel metric 256',
    ],
    'removed connected routes are restored',
  )
  const down = observed.links.map(link => ({ ...link, up: false }))
  t.strictSame(
    additionsOf({ ...observed, links: down, connected: [] }),
    [],
    'the kernel adds them when the interface comes up',
  )
  const stripped = planInterfaces([], observed, [device], 'us', false)
  t.strictSame(
    stripped.removals.map(({ line }) => line),
    [
      'rule del from fd00::100 table 100 priority 100',
      'route del 10.9.0.0/16 via 10.0.0.1 dev vip0 table main',
      'route del fd00::/64 dev vip0 table 100',
      'route del ::/0 via fd00::1 dev vip0 table 100',
      'addr del 10.0.0.5/24 dev vip0',
      'addr del fd00::5/64 dev vip0',
      'addr del fd00::100/128 dev vip0',
    ],
  )
  const rule = (holder: 'us' | 'keepalived') =>
    planInterfaces([nic], observed, [device], holder, true).additions.map(({ line }) => line)
  t.strictSame(
    rule('us'),
    ['rule add fwmark 0x6b760000 table 100 priority 100'],
    'replies of members find the VIP’s routes',
  )
  t.strictSame(
    rule('keepalived'),
    ['rule add fwmark 0x6b760000 table 1 priority 100'],
    'also where keepalived adds them',
  )
  const marked = { family: 6 as const, priority: 100, mark: '0x6b760000', table: '100' }
  const tunnel = { family: 6 as const, priority: 40, mark: '0x6b72', table: '350' }
  t.strictSame(
    planInterfaces(
      [nic],
      { ...observed, rules: [...observed.rules, marked, tunnel] },
      [device],
      'us',
      false,
    ).removals.map(({ line }) => line),
    ['rule del fwmark 0x6b760000 table 100 priority 100'],
    'and no others',
  )
  const withKeepalived = planInterfaces([nic], observed, [device], 'keepalived', false)
  t.strictSame(withKeepalived.additions, [])
  t.notOk(
    withKeepalived.removals.some(({ line }) => line.includes('addr')),
    'keepalived’s VIP is not removed',
  )
  t.end()
})

t.test('recent lines of several logs are merged by time', t => {
  const directory = mkdtempSync(join(tmpdir(), 'krater-logs-'))
  t.teardown(() => rmSync(directory, { recursive: true }))
  const file = (name: string, lines: string[]) => {
    writeFileSync(join(directory, name), `${lines.join('\n')}\n`)
    return join(directory, name)
  }
  const one = file('one', ['2026-01-01T00:00:01.000Z a', '  a goes on', '2026-01-01T00:00:04.000Z d'])
  file('one.1', ['2026-01-01T00:00:00.000Z oldest'])
  const two = file('two', ['Thu Jan  1 00:00:02 2026: b', 'Thu Jan  1 00:00:03 2026: c'])
  const lines = recentLines({ one, two, three: join(directory, 'missing') }, 5)
  t.strictSame(
    lines.map(line => `${line.slice(0, 3)} ${line.at(-1)}`),
    ['one a', 'one n', 'two b', 'two c', 'one d'],
  )
  t.equal(recentLines({ one, two }, 1).length, 1)
  t.equal(recentLines({ one, two }, 50)[0], 'one: 2026-01-01T00:00:00.000Z oldest')
  t.end()
})

t.test('sshd counts as served while it listens and its accept queue is empty', t => {
  const socket = (number: number, state: string, queue: string) =>
    `   0: 0100007F:0016 00000000:0000 ${state} 00000000:${queue} 00:00000000 00000000     0        0 ${number} 1 0 100 0 0 10 0`
  const isSshdServed = (...sockets: string[]) => isServed(sockets, new Set(['7', '8']))
  const other = socket(70, '0A', '00000003')
  t.equal(isSshdServed(other, socket(7, '0A', '00000000')), true)
  t.equal(isSshdServed(other, socket(7, '0A', '00000001')), false, 'a connection waits')
  t.equal(
    isSshdServed(other, socket(7, '0A', '00000000'), socket(8, '0A', '00000001')),
    false,
    'a connection waits at one of its addresses',
  )
  t.equal(isSshdServed(socket(70, '0A', '00000000')), false, 'another process listens on its port')
  t.equal(isSshdServed(socket(7, '01', '00000000')), false, 'a connection is not a listener')
  t.end()
})
