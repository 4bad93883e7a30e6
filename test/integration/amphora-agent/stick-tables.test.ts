import { execFileSync } from 'node:child_process'
import t from 'tap'
import type { Handover, TablesTaken } from '../../../amphora-agent/protocol/handover.js'
import { AMPHORA_ID, createAmphora, until } from '../../support/worlds/amphora.js'
import { BACKEND, desire, server } from '../../support/worlds/amphora-desired.js'

const VIP = '10.68.0.100'
const STRANGER = '10.68.0.13'
const ADDRESS = { old: '10.68.0.11', successor: '10.68.0.12' } as const
const MAC = { old: '02:00:0a:44:00:01', successor: '02:00:0a:44:00:02' } as const
const TABLES_PORT = 1026

type Amphora = Awaited<ReturnType<typeof createAmphora>>

const [old, successor] = await Promise.all([createAmphora(), createAmphora()])
t.teardown(() => Promise.all([old.destroy(), successor.destroy()]))
execFileSync('nsenter', [
  ...['-t', String(old.initPid), '-n', 'ip', 'link', 'add', 'p0', 'address', MAC.old, 'type', 'veth'],
  ...['peer', 'name', 'p0', 'address', MAC.successor, 'netns', String(successor.initPid)],
])

const vips: Handover['vips'] = [{ address: VIP, subnet: '10.68.0.0/24', gateway: null }]
const handoverOf = (role: Handover['role']): Handover => {
  const [own, peer] = role === 'leaving' ? (['old', 'successor'] as const) : (['successor', 'old'] as const)
  return { role, own: ADDRESS[own], peer: ADDRESS[peer], interface: 'vip0', vips, seconds: 60 }
}

async function apply(amphora: Amphora, who: 'old' | 'successor', generation: number, peer?: string): Promise<void> {
  const nic = { mac: MAC[who], name: 'vip0', mtu: 1500, addresses: [`${ADDRESS[who]}/24`], routes: [] }
  const interfaces = [{ ...nic, vips: who === 'old' ? vips : [] }]
  const agent = await amphora.connect()
  const named = peer === undefined ? {} : { peer }
  await agent.apply(desire({ generation, servers: [server(1), server(2)], ...named, changes: { interfaces } }))
  agent.end()
}

async function begin(amphora: Amphora, role: Handover['role']): Promise<TablesTaken | undefined> {
  const agent = await amphora.connect()
  const answer = await agent.send({ verb: 'handover', handover: handoverOf(role) })
  agent.end()
  if (!answer.ok) throw new Error(JSON.stringify(answer.error))
  return (answer.result as { tables?: TablesTaken }).tables
}

const runtime = (amphora: Amphora, command: string) =>
  amphora.inside('bash', '-c', `echo '${command}' | socat -t5 - UNIX:/run/krater/haproxy.sock`)
const stick = (amphora: Amphora, keys: readonly string[], member: number) =>
  runtime(amphora, keys.map(key => `set table ${BACKEND} key ${key} data.server_id ${member}`).join(';'))
const memberOf = (amphora: Amphora, key: string) =>
  /server_id=(\d+)/.exec(runtime(amphora, `show table ${BACKEND} key ${key}`))?.[1]
const size = (amphora: Amphora) => Number(/used:(\d+)/.exec(runtime(amphora, `show table ${BACKEND}`))?.[1])

t.test('an amphora that takes over', async t => {
  await t.test('transfers nothing without session persistence', async t => {
    await Promise.all([apply(old, 'old', 1), apply(successor, 'successor', 1)])
    await begin(old, 'leaving')
    t.equal(await begin(successor, 'taking-over'), 'none')
  })

  await t.test('has all stick-table entries of the old amphora before the VIP moves', async t => {
    await Promise.all([apply(old, 'old', 2, AMPHORA_ID), apply(successor, 'successor', 2, AMPHORA_ID)])
    const keys = Array.from(
      { length: 5_000 },
      (_, i) => `2001:db8::${(i >> 12).toString(16)}:${(i & 4095).toString(16)}`,
    )
    for (let at = 0; at < keys.length; at += 100) stick(old, keys.slice(at, at + 100), 1 + ((at / 100) % 2))
    t.equal(size(old), keys.length)
    await begin(old, 'leaving')
    const started = performance.now()
    t.equal(await begin(successor, 'taking-over'), 'all')
    t.comment(`${keys.length} entries in ${Math.round(performance.now() - started)} ms`)
    t.equal(size(successor), keys.length)
    t.equal(memberOf(successor, keys[0]!), '1')
    t.equal(memberOf(successor, keys[150]!), '2')
  })

  await t.test('receives later entries, even after both agents are killed', async t => {
    stick(old, ['2001:db8:1::1'], 2)
    await until(() => memberOf(successor, '2001:db8:1::1') === '2' || null)
    await Promise.all([old.killAgent(), successor.killAgent()])
    stick(old, ['2001:db8:1::2'], 2)
    await begin(old, 'leaving')
    t.equal(await begin(successor, 'taking-over'), 'all')
    t.equal(memberOf(successor, '2001:db8:1::2'), '2')
  })

  await t.test('is the only one that may read the tables', async t => {
    const readTables = `exec 3<>/dev/tcp/${ADDRESS.old}/${TABLES_PORT}`
    const ask = () => successor.inside('timeout', '1', 'bash', '-c', readTables)
    t.doesNotThrow(ask)
    successor.inside('ip', 'addr', 'add', `${STRANGER}/32`, 'dev', 'lo')
    successor.inside('ip', 'route', 'add', `${ADDRESS.old}/32`, 'dev', 'vip0', 'src', STRANGER)
    t.throws(ask)
  })

  await t.test('keeps the entries across a reload', async () => {
    const before = size(successor)
    const agent = await successor.connect()
    const servers = [server(1), server(2)]
    const { interfaces } = desire({ generation: 3 })
    await agent.apply(
      desire({ generation: 3, servers, peer: AMPHORA_ID, frontend: ['option httplog'], changes: { interfaces } }),
    )
    agent.end()
    await until(() => size(successor) === before || null)
  })

  await t.test('keeps the entries across a reload just after its start', async t => {
    const agent = await successor.connect()
    const { pid } = (await agent.ask('status')).haproxy
    successor.inside('kill', '-9', String(pid))
    await until(async () => {
      const { haproxy } = await agent.ask('status')
      return (haproxy.running && haproxy.pid !== pid && haproxy.workers === 1) || null
    })
    await until(() => {
      stick(successor, ['2001:db8:2::1'], 2)
      return memberOf(successor, '2001:db8:2::1') === '2' || null
    })
    const { interfaces } = desire({ generation: 4 })
    const desired = desire({
      generation: 4,
      servers: [server(1), server(2)],
      peer: AMPHORA_ID,
      changes: { interfaces },
    })
    t.match(await agent.apply(desired), { transition: 'reload' })
    agent.end()
    await until(() => memberOf(successor, '2001:db8:2::1') === '2' || null, 2_000)
  })

  await t.test('waits ten seconds for an amphora that sends none, and continues without them', async t => {
    await apply(successor, 'successor', 5, AMPHORA_ID)
    old.freezeAgent()
    const started = performance.now()
    t.equal(await begin(successor, 'taking-over'), 'missing')
    t.ok(performance.now() - started < 14_000)
  })
})
