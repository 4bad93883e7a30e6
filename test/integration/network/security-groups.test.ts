import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import {
  type AppliedFilters,
  applyFilters,
  filterState,
} from '../../../controller/network/local/security-groups/apply.js'
import type { Filter, Filters, Rule, SecurityGroup } from '../../../controller/network/local/security-groups/filters.js'
import { createWorld, giveAddresses, nic } from '../../support/worlds/fabric-world.js'
import { inhabit } from '../../support/worlds/inhabitant.js'

const rule = (direction: Rule['direction'], values: Partial<Rule> = {}): Rule => ({
  ...{ direction, version: 4, protocol: null, min: null, max: null, remote: null },
  ...values,
})
const [TCP, UDP, ICMP, ICMPV6] = [6, 17, 1, 58]
const outgoing = [rule('egress'), rule('egress', { version: 6 })]
const group = (rules: Rule[], members: string[] = []): SecurityGroup => ({ id: randomUUID(), rules, members })
const soon = { waitMs: 700 }

/** Two networks with the same addresses, each with a server and a client; on the first also another client. */
async function createFilteredWorld(t: Test) {
  const world = await createWorld(t)
  const { fabric } = world
  const settle = async (
    name: string,
    networkId: string,
    host: number,
    filters: Filters | null = null,
    vips: string[] = [],
  ) => {
    const namespace = await world.machine(name)
    const addresses = [`10.0.0.${host}`, `fd00::${host}`]
    const port = nic(namespace, networkId, ...addresses, ...vips)
    await fabric.attach({ ...port, portId: filters?.filters[0]?.portId ?? port.portId, filters })
    await giveAddresses(namespace, `10.0.0.${host}/24`, `fd00::${host}/64`, ...vips.map(vip => `${vip}/24`))
    return {
      namespace,
      ...(await inhabit(name, (program, args) => world.start(namespace, program, args), [8080, 8081])),
    }
  }
  const [one, two] = [randomUUID(), randomUUID()]
  const web = group([rule('ingress', { protocol: TCP, min: 8080, max: 8080 }), ...outgoing])
  const closed = group(outgoing)
  const filter = (networkId: string, groupIds: string[], more: Partial<Filter> = {}): Filter => ({
    ...{ portId: randomUUID(), networkId, vips: null, groupIds, stateful: true },
    ...more,
  })
  const [first, second] = [filter(one, [web.id]), filter(two, [closed.id])]
  const shares = [first, second].map(({ portId }) => ({ portId, projectId: 'p', isRouterLeg: false }))
  const of = (filters: Filter[], groups: SecurityGroup[]): Filters => ({ filters, groups, shares })
  return {
    ...world,
    filters: of([first, second], [web, closed]),
    of,
    filter,
    settle,
    networks: { one, two },
    first,
    second,
    web,
    closed,
    server: await settle('server', one, 2, of([first], [web])),
    twin: await settle('twin', two, 2, of([second], [closed])),
    client: await settle('client', one, 3),
    friend: await settle('friend', one, 4),
    apart: await settle('apart', two, 3),
  }
}

t.test('security groups', async t => {
  const world = await createFilteredWorld(t)
  const { fabric, server, twin, client, friend, apart, first, second, web, closed, of, networks, settle, filter } =
    world
  let known: AppliedFilters | null = null
  const apply = async (filters: Filters) => {
    known = (await applyFilters(fabric.namespace, async () => filters, known)).applied
  }
  const ping = (from: { namespace: string }, to: string) =>
    world.run(from.namespace, 'ping', '-c', '1', '-W', '1', to).then(
      () => true,
      () => false,
    )

  await t.test('are in force as soon as a port is plugged in', async t => {
    t.equal(await client.ask('10.0.0.2'), 'server 10.0.0.3', 'the rule')
    t.equal(await client.ask('10.0.0.2', { port: 8081, ...soon }), null, 'another port')
    t.equal(await client.ask('10.0.0.2', { protocol: 'udp', ...soon }), null, 'another protocol')
    t.equal(await client.ask('fd00::2', soon), null, 'the other family')
    t.equal(await apart.ask('10.0.0.2', soon), null, 'the same address on another network')
    t.equal(await server.ask('10.0.0.3', { protocol: 'udp' }), 'client 10.0.0.2', 'answers to what it began')
    t.equal(await twin.ask('fd00::3'), 'apart fd00::2', 'in the other family, on the other network')
    t.equal(await client.ask('10.0.0.4'), 'friend 10.0.0.3', 'machines without groups are open')
  })

  await t.test('change nothing when they are applied as they are', async t => {
    const connection = await client.open('10.0.0.2')
    await apply(world.filters)
    t.equal(await client.say(connection), 'server 10.0.0.3')
    const state = await filterState(fabric.namespace)
    known = null
    await apply(world.filters)
    t.equal(await filterState(fabric.namespace), state)
    t.equal(await client.say(connection), 'server 10.0.0.3')
  })

  await t.test('end connections that a rule no longer allows, until it does again, and no others', async t => {
    const own = await client.open('10.0.0.2')
    const began = await server.open('10.0.0.3')
    const other = await twin.open('10.0.0.3')
    await apply(of([first, second], [{ ...web, rules: outgoing }, closed]))
    t.equal(await client.say(own, 700), null)
    t.equal(await client.ask('10.0.0.2', soon), null)
    t.equal(await server.say(began), 'client 10.0.0.2', 'what another rule allows')
    t.equal(await twin.say(other), 'apart 10.0.0.2', 'another network')
    await apply(world.filters)
    t.match(await client.say(own, 5_000), /^server 10\.0\.0\.3/)
    t.equal(await server.say(began), 'client 10.0.0.2')
  })

  await t.test('pass an answer as the first packet after a change', async t => {
    const own = await client.open('10.0.0.2')
    await apply(of([first, second], [{ ...web, rules: [...web.rules, rule('ingress', { protocol: UDP })] }, closed]))
    t.equal(await server.say(await server.open('10.0.0.3')), 'client 10.0.0.2')
    t.equal(await client.say(own), 'server 10.0.0.3')
    t.equal(await client.ask('10.0.0.2', { protocol: 'udp' }), 'server 10.0.0.3', 'and the new rule holds')
  })

  await t.test('name other sides by prefix and by group, and ICMP by type', async t => {
    const friends = group([], ['10.0.0.4', 'fd00::4'])
    const rules = [
      rule('ingress', { protocol: TCP, min: 8080, max: 8080, remote: { groupId: friends.id } }),
      rule('ingress', { version: 6, protocol: UDP, min: 8000, max: 8100, remote: { cidr: 'fd00::3/128' } }),
      rule('ingress', { protocol: ICMP, min: 8, max: 0, remote: { cidr: '10.0.0.3/32' } }),
      rule('ingress', { version: 6, protocol: ICMPV6, min: 128, remote: { groupId: friends.id } }),
    ]
    await apply(of([first, second], [{ ...web, rules }, closed, friends]))
    t.equal(await friend.ask('10.0.0.2'), 'server 10.0.0.4')
    t.equal(await client.ask('10.0.0.2', soon), null)
    t.equal(await client.ask('fd00::2', { protocol: 'udp' }), 'server fd00::3')
    t.equal(await friend.ask('fd00::2', { protocol: 'udp', ...soon }), null)
    t.same(await Promise.all([ping(client, '10.0.0.2'), ping(friend, '10.0.0.2')]), [true, false])
    t.same(await Promise.all([ping(client, 'fd00::2'), ping(friend, 'fd00::2')]), [false, true])
    t.equal(await server.ask('10.0.0.3', soon), null, 'no rule, no way out')
    await apply(of([first, second], [{ ...web, rules }, closed, { ...friends, members: ['10.0.0.3'] }]))
    t.equal(await client.ask('10.0.0.2'), 'server 10.0.0.3', 'a new member of the group')
    t.equal(await friend.ask('10.0.0.2', soon), null)
  })

  await t.test('without state, let answers pass only by a rule', async t => {
    const stateless = { ...first, stateful: false }
    await apply(
      of([stateless, second], [{ ...web, rules: [rule('ingress', { protocol: TCP, min: 8080, max: 8080 })] }, closed]),
    )
    t.equal(await client.ask('10.0.0.2', soon), null)
    const back = rule('egress', { protocol: TCP })
    await apply(of([stateless, second], [{ ...web, rules: [...web.rules, back] }, closed]))
    t.equal(await client.ask('10.0.0.2'), 'server 10.0.0.3')
  })

  await t.test('of a VIP leave the other addresses of its holder alone', async t => {
    const vip = filter(networks.one, [web.id], { vips: ['10.0.0.100'] })
    const holder = await settle('holder', networks.one, 9, null, ['10.0.0.100'])
    const early = await client.open('10.0.0.100')
    const denied = await friend.open('10.0.0.100')
    const named = { ...web, rules: [rule('ingress', { protocol: TCP, remote: { cidr: '10.0.0.3/32' } })] }
    const portId = (await fabric.attachedPorts()).at(-1)!
    await apply(of([{ ...vip, portId }], [named]))
    t.equal(await client.ask('10.0.0.100'), 'holder 10.0.0.3')
    t.equal(await friend.ask('10.0.0.100', soon), null)
    t.equal(await friend.ask('10.0.0.9', { protocol: 'udp' }), 'holder 10.0.0.4', 'its own address')
    t.equal(await holder.ask('10.0.0.4', { from: '10.0.0.9' }), 'friend 10.0.0.9')
    t.equal(await client.say(early), 'holder 10.0.0.3', 'what began before and is allowed stays')
    t.equal(await friend.say(denied, 700), null, 'and what is not ends')
    t.equal(await client.ask('10.0.0.2', { port: 8081 }), 'server 10.0.0.3', 'a port without filters is open again')
  })

  await t.test('leave nothing behind', async t => {
    await apply(of([], []))
    t.equal(await client.ask('10.0.0.2', { protocol: 'udp' }), 'server 10.0.0.3')
    t.notMatch(await filterState(fabric.namespace), /ingress_|to_[0-9a-f]{16}|members/)
    t.match(await world.run(fabric.namespace, 'ip', '-d', 'link', 'show', 'type', 'bridge'), /nf_call_iptables 0/)
  })
})
