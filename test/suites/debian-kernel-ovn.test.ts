import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.js'
import { type Settled, startOvnMachines } from '../support/worlds/ovn-machines.js'

t.setTimeout(1_100_000)

const support = join(import.meta.dirname, '../support')
/** An emulated machine is slow, and more so beside other tests. */
const LIMIT_MS = 180_000
const PORT = 7000
/** New connections of which some reach each of two members, but for one time in 2^15. */
const ENOUGH = 16

const linesOf = (text: string) => text.split('\n').filter(Boolean)
const namesOf = (lines: readonly string[]) => new Set(lines.map(line => line.split(' ')[0]))

t.test('on two machines with Debian’s kernel and its datapath', async t => {
  const { lb, net, machines, settle, settled, remove } = await startOvnMachines(t)
  const { subnets } = await net<{ subnets: { id: string }[] }>('GET', '/subnets?name=private-subnet')
  const subnetId = subnets[0]!.id
  const [one, two, client] = await Promise.all([
    settle(machines[0], subnetId, 'one'),
    settle(machines[0], subnetId, 'two'),
    settle(machines[1], subnetId, 'client'),
  ])
  for (const machine of machines)
    t.match(
      await machine.run('ovs-dpctl show'),
      /^system@ovs-system:[\s\S]*genev_sys/,
      'the kernel forwards and tunnels',
    )

  const members = [one, two].map(({ name, address }) => ({
    ...{ name, address, subnet_id: subnetId, protocol_port: PORT },
  }))
  const listeners = ['SCTP', 'TCP', 'UDP'].map(protocol => ({
    ...{ name: protocol, protocol, protocol_port: PORT },
    default_pool: { name: protocol, protocol, lb_algorithm: 'SOURCE_IP_PORT', members },
  }))
  const created = await lb<{ loadbalancer: { id: string; vip_address: string } }>('POST', '/loadbalancers', {
    loadbalancer: { provider: 'ovn', vip_subnet_id: subnetId, listeners },
  })
  const { id, vip_address: vip } = created.loadbalancer
  await settled(id)
  const { pools } = await lb<{ pools: { id: string; name: string }[] }>('GET', `/pools?loadbalancer_id=${id}`)
  const pool = `/pools/${pools.find(({ name }) => name === 'SCTP')!.id}`
  const found = await lb<{ members: { id: string; name: string }[] }>('GET', `${pool}/members`)
  const change = async (name: string, member: object) => {
    await lb('PUT', `${pool}/members/${found.members.find(one => one.name === name)!.id}`, { member })
    await settled(id)
  }
  const answers = async () => linesOf(await client.run(associate(vip, ENOUGH), { seconds: 120 }))

  for (const { name, address, start } of [one, two]) {
    await start(`perl ${support}/services/sctp-server.pl ${name} ${address} ${PORT}`)
    await start(`socat TCP-LISTEN:${PORT},fork,reuseaddr 'SYSTEM:echo ${name} $SOCAT_PEERADDR'`)
    await start(`perl ${support}/services/datagram-server.pl ${name} ${address} ${PORT}`)
  }
  for (const { address } of [one, two]) await reach(client, address)

  await t.test('TCP and UDP are balanced, and members see the client', async t => {
    const seen = new Set([`one ${client.address}`, `two ${client.address}`])
    for (const command of [connect, send])
      t.same(new Set(linesOf(await client.run(command(vip, ENOUGH), { seconds: 120 }))), seen)
  })

  await t.test('SCTP is balanced, and answered on each association', async t => {
    const balanced = await answers()
    t.same(
      balanced.map(line => line.split(' ')[1]),
      Array.from({ length: ENOUGH }, (_, index) => String(index + 1)),
    )
    t.same(namesOf(balanced), new Set(['one', 'two']))
  })

  await t.test('a drained member gets no new association, and keeps its own', async t => {
    await client.start(`bash -c '${associate(vip, '')} >/tmp/kept 2>&1'`)
    const kept = async () => linesOf(await machines[1].run('touch /tmp/kept; cat /tmp/kept'))
    const goesOn = async () => {
      const before = (await kept()).length
      await eventually('the association goes on', async () => (await kept()).length > before + 3, LIMIT_MS)
    }
    await goesOn()
    const [own = ''] = namesOf(await kept())
    await change(own, { weight: 0 })
    t.same(namesOf(await answers()), new Set([own === 'one' ? 'two' : 'one']))
    await goesOn()
    t.same(namesOf(await kept()), new Set([own]))
    await change(own, { weight: 1 })
    t.same(namesOf(await answers()), new Set(['one', 'two']), 'and gets new ones when it is back')
  })

  await t.test('with no member left, an association is refused at once', async t => {
    for (const name of ['one', 'two']) await change(name, { admin_state_up: false })
    await t.rejects(
      client.run(`timeout 20 ${associate(vip, 1)}`),
      /connect: Connection refused/,
      'by an abort, not by silence',
    )
    await change('one', { admin_state_up: true })
    t.same(namesOf(await answers()), new Set(['one']))
  })

  await t.test('a deleted load balancer serves nobody', async t => {
    await remove(id)
    await t.rejects(client.run(`timeout 5 ${associate(vip, 1)}`), /exited with status/)
  })
})

/** Commands that print what is answered, once for each new connection. */
const connect = (address: string, count: number) =>
  `bash -c 'for i in {1..${count}}; do socat -u TCP:${address}:${PORT} -; done'`
const send = (address: string, count: number) => `perl ${support}/clients/datagram-lines.pl ${address} ${PORT} ${count}`
const associate = (address: string, count: number | '') =>
  `perl ${support}/clients/sctp-lines.pl ${address} ${PORT} ${count}`

/** Waits until a place serves all protocols. */
async function reach({ run }: Settled, address: string): Promise<void> {
  const serves = (command: string) =>
    run(command).then(
      text => text !== '',
      () => false,
    )
  for (const command of [connect, send, associate])
    await eventually(`${address} serves`, () => serves(command(address, 1)), LIMIT_MS)
}
