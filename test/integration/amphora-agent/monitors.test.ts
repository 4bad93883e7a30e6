import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import t from 'tap'
import type { DatagramMonitor, DatagramPool } from '../../../amphora-agent/protocol/datagrams.js'
import { until } from '../../support/worlds/amphora.js'
import { ADDRESSES, createMonitoring } from '../../support/worlds/monitoring.js'

/** The agent's monitors and real members of every kind, each at an IPv4 and an IPv6 address. */

const machine = await createMonitoring()
t.teardown(() => machine.end())

type Place = keyof typeof ADDRESSES
const MONITOR: DatagramMonitor = {
  type: 'TCP',
  delay: 1,
  timeout: 1,
  rise: 1,
  fall: 1,
  http: null,
  exchange: null,
}
const HTTP = { method: 'GET', path: '/', version: '1.1', host: null, codes: '200-204' } as const
const PING_PONG = { payload: '70696e67', answer: '706f6e67' }

let pools = 0
/** A pool with two members for each port, one per family: `NAME4` and `NAME6`. */
function pool(monitor: Partial<DatagramMonitor>, members: Record<string, number>, place: Place = 'members') {
  return {
    id: `11111111-0000-4000-8000-${String(++pools).padStart(12, '0')}`,
    algorithm: 'ROUND_ROBIN',
    persistence: null,
    monitor: { ...MONITOR, ...monitor },
    members: Object.entries(members).flatMap(([name, port]) =>
      ADDRESSES[place].map(address => ({
        id: `${name}${address.includes(':') ? 6 : 4}`,
        ...{ address, port, weight: 1, backup: false, disabled: false },
        monitor: { address, port },
      })),
    ),
  } satisfies DatagramPool
}

/** The same for both families. */
const both = (states: Record<string, string>) =>
  Object.fromEntries(
    Object.entries(states).flatMap(([name, state]) => [4, 6].map(family => [`${name}${family}`, state])),
  )

t.test('members of every kind are up, or down with the cause', async t => {
  machine.watch([
    pool({ type: 'UDP-CONNECT' }, { udpAnswers: 5001, udpSilent: 5002, udpFloods: 5003, udpClosed: 5009 }),
    pool({ type: 'UDP-CONNECT', exchange: PING_PONG }, { pong: 5000, pang: 5001, mute: 5002, noise: 5003, shut: 5009 }),
    pool({ type: 'TCP' }, { tcp: 7000, tcpClosed: 7009 }),
    pool(
      { type: 'HTTP', http: HTTP },
      { ok: 8000, busy: 8001, moved: 8002, cut: 8003, slow: 8004, endless: 8005, reset: 8006 },
    ),
    pool({ type: 'SCTP' }, { sctp: 9000, aborts: 9001, stranger: 9002, nobody: 9003, hostile: 9004 }),
    pool({ type: 'PING' }, { ping: 1 }),
  ])
  await machine.untilStates({
    ...both({ udpAnswers: 'up', udpSilent: 'up', udpFloods: 'up', udpClosed: 'down: L4CON Connection refused' }),
    ...both({ pong: 'up', pang: 'down: L7RSP', mute: 'down: L7TOUT', noise: 'down: L7RSP' }),
    ...both({ shut: 'down: L4CON Connection refused', tcp: 'up', tcpClosed: 'down: L4CON Connection refused' }),
    ...both({ ok: 'up', busy: 'down: L7STS 503', moved: 'down: L7STS 302', cut: 'down: L7RSP', slow: 'down: L7TOUT' }),
    ...both({ endless: 'down: L7RSP', reset: 'down: L7RSP' }),
    ...both({ sctp: 'up', aborts: 'down: L4CON Connection refused (ABORT)', stranger: 'down: L4TOUT' }),
    ...both({ nobody: 'down: L4TOUT', hostile: 'down: L6RSP not an answer to INIT', ping: 'up' }),
  })
  await until(() => (machine.aborted().length >= 2 ? true : null))
  t.same(new Set(machine.aborted()), new Set(['9000']), 'the association is abandoned, with the right tag and checksum')
  t.same(machine.probers().length, 1, 'one process for all of them')
})

t.test('a host that does not exist is down for every kind of monitor', async () => {
  const limits = { timeout: 4 }
  machine.watch([
    pool({ type: 'UDP-CONNECT' }, { udp: 5000 }, 'absent'),
    pool({ ...limits, type: 'UDP-CONNECT', exchange: PING_PONG }, { exchange: 5000 }, 'absent'),
    pool({ ...limits, type: 'TCP' }, { tcp: 7000 }, 'absent'),
    pool({ ...limits, type: 'HTTP', http: HTTP }, { http: 8000 }, 'absent'),
    pool({ ...limits, type: 'SCTP' }, { sctp: 9000 }, 'absent'),
    pool({ ...limits, type: 'PING' }, { ping: 1 }, 'absent'),
  ])
  const state = 'down: L4CON No route to host'
  await machine.untilStates(both({ udp: state, exchange: state, tcp: state, http: state, sctp: state, ping: state }))
})

t.test('a member goes down and up; its state outlives changes of its monitor, its id and others', async t => {
  const steady = pool({ type: 'TCP', rise: 2, fall: 2 }, { steady: 7000 })
  machine.watch([steady])
  await machine.untilStates(both({ steady: 'up' }))
  await machine.toggle('close')
  await machine.untilStates(both({ steady: 'down: L4CON Connection refused' }))
  const renamed = pool({ type: 'TCP', rise: 10, delay: 60 }, { renamed: 7000 })
  machine.watch([{ ...renamed, id: steady.id }, pool({ type: 'PING' }, { other: 1 })])
  await machine.untilStates(both({ other: 'up' }))
  t.match(machine.seen.states, both({ renamed: 'down: L4CON Connection refused' }))
  machine.watch([steady])
  await machine.toggle('open')
  await machine.untilStates(both({ steady: 'up' }))
})

t.test('what is known survives the agent; what the controller knows to be down needs proof', async t => {
  const slow = pool({ type: 'TCP', delay: 60 }, { open: 7000, closed: 7009 })
  machine.watch([slow])
  await machine.untilStates(both({ open: 'up', closed: 'down: L4CON Connection refused' }))
  await until(() =>
    machine.inside('cat', '/run/krater/member-states.json').match(/"up"/g)?.length === 2 ? true : null,
  )
  await machine.kill()
  t.same(machine.probers(), [], 'the prober ended with the agent')
  const stuck = pool({ type: 'HTTP', http: HTTP, timeout: 60, delay: 60 }, { stuck: 8004, new: 8004 })
  machine.watch([{ ...slow, monitor: { ...stuck.monitor } }, stuck], ['stuck4', 'stuck6', 'open4'])
  await until(() => (machine.seen.states.stuck4 === undefined ? null : true))
  t.match(machine.seen.states, {
    ...both({ open: 'up', closed: 'down: L4CON Connection refused', stuck: 'down', new: 'unknown' }),
  })
})

t.test('a prober that ends or hangs is replaced, and the states stay', async t => {
  const watched = pool({ type: 'TCP' }, { tcp: 7000, closed: 7009 })
  const expected = both({ tcp: 'up', closed: 'down: L4CON Connection refused' })
  machine.watch([watched])
  await machine.untilStates(expected)
  const replaced = async (signal: NodeJS.Signals) => {
    const [prober] = machine.probers()
    process.kill(prober!, signal)
    return until(() => machine.probers().find(pid => pid !== prober) ?? null, 20_000)
  }
  await replaced('SIGKILL')
  t.match(machine.seen.states, expected)
  await until(() => (machine.seen.repaired.length > 0 ? true : null))
  await machine.toggle('close')
  await machine.untilStates(both({ tcp: 'down: L4CON Connection refused' }))
  await replaced('SIGSTOP')
  await machine.toggle('open')
  await machine.untilStates(expected)
  t.same(new Set(machine.seen.repaired), new Set(['the prober of members exited; restarted']))
})

t.test('what the machine itself does not send says nothing about a member', async t => {
  machine.watch([
    pool({ type: 'UDP-CONNECT', exchange: PING_PONG }, { pong: 5000 }),
    pool({ type: 'PING' }, { ping: 1 }),
  ])
  await machine.untilStates(both({ pong: 'up', ping: 'up' }))
  machine.inside(
    'nft',
    'add table inet full; add chain inet full output { type filter hook output priority 0; policy drop; }',
  )
  await until(() => (machine.seen.logged.some(text => text.includes('Operation not permitted')) ? true : null))
  machine.inside('nft', 'delete table inet full')
  t.match(machine.seen.states, both({ pong: 'up', ping: 'up' }))
  machine.seen.logged.length = 0
})

t.test('the prober has HAProxy’s account, and its packets the routes of that account', async t => {
  const kinds = [
    pool({ type: 'UDP-CONNECT' }, { udp: 5000 }),
    pool({ type: 'TCP' }, { tcp: 7000 }),
    pool({ type: 'SCTP' }, { sctp: 9000 }),
    pool({ type: 'PING' }, { ping: 1 }),
  ]
  machine.watch(kinds)
  await machine.untilStates(both({ udp: 'up', tcp: 'up', sctp: 'up', ping: 'up' }))
  const status = readFileSync(`/proc/${machine.probers()[0]}/status`, 'utf8')
  const account = execFileSync('id', ['-u', 'haproxy'], { encoding: 'utf8' }).trim()
  t.match(status, new RegExp(`^Uid:(\\t${account}){4}$`, 'm'))
  for (const line of ['CapPrm:\t0+', 'CapEff:\t0+', 'NoNewPrivs:\t1', 'Seccomp:\t2']) t.match(status, new RegExp(line))
  for (const family of ['-4', '-6']) {
    machine.inside('ip', family, 'rule', 'add', 'priority', '50', 'uidrange', `${account}-${account}`, 'prohibit')
  }
  const state = 'down: L4CON Permission denied'
  await machine.untilStates(both({ udp: state, tcp: state, sctp: state, ping: state }))
})

t.test('without anything to probe there is no prober', async t => {
  machine.watch([{ ...pool({}, { tcp: 7000 }), monitor: null }])
  await until(() => (machine.probers().length === 0 ? true : null))
  await machine.untilStates(both({ tcp: 'unknown' }))
  t.same(machine.seen.logged, [])
})
