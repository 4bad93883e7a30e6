import { randomUUID } from 'node:crypto'
import type { Knex } from 'knex'
import t, { type Test } from 'tap'
import { one } from '../../../controller/database/query.js'
import { sql } from '../../../controller/database/sql.js'
import { inTransaction } from '../../../controller/database/transaction.js'
import type { Caller } from '../../../controller/identity/caller.js'
import { contains, defaultGateway, defaultPools, parseCidr, poolSpan } from '../../../controller/network/addresses.js'
import { bootstrapNetworks } from '../../../controller/network/bootstrap.js'
import { AddressTaken, InvalidPortRequest, NoAddressLeft, PORT_OWNER } from '../../../controller/network/driver.js'
import { allocateAddress } from '../../../controller/network/local/allocation.js'
import { createLocalDriver } from '../../../controller/network/local/driver.js'
import { publicIpv6 } from '../../../controller/network/migrations/008-public-ipv6.js'
import { createTestDatabase } from '../../support/database/database.js'

const database = await createTestDatabase()
t.teardown(database.drop)
const db = database.of('network')
const driver = createLocalDriver(db, { reserve: 64, project_share: 25 })

const callerOf = (projectId: string | null, ...roles: string[]): Caller => {
  const domain = { id: 'default', name: 'Default' }
  return {
    user: { id: 'user', name: 'user', domain },
    project: projectId === null ? null : { id: projectId, name: projectId, domain },
    domain: null,
    system: false,
    roles,
    expiresAt: new Date(Date.now() + 3_600_000),
  }
}

type Columns = { project_id?: string; shared?: boolean; network_type?: 'flat'; physical_network?: string }

async function makeNetwork(cidrs: string[], columns: Columns = {}) {
  const [network] = await db('network')
    .insert({ project_id: 'owner', ...columns })
    .returning<{ id: string; project_id: string }[]>(['id', 'project_id'])
  const subnets: string[] = []
  for (const text of cidrs) {
    const cidr = parseCidr(text)!
    const gateway = defaultGateway(cidr)
    const [subnet] = await db('subnet')
      .insert({
        network_id: network!.id,
        project_id: network!.project_id,
        ip_version: cidr.version,
        cidr: cidr.text,
        gateway_ip: gateway,
      })
      .returning<{ id: string }[]>('id')
    await db('allocation_pool').insert(
      defaultPools(cidr, gateway).map(pool => ({
        subnet_id: subnet!.id,
        first: pool.start,
        last: pool.end,
        span: poolSpan(pool),
      })),
    )
    subnets.push(subnet!.id)
  }
  return { id: network!.id, subnets }
}

const request = (
  networkId: string,
  fixedIps: { subnetId: string; address?: string }[],
  deviceId: string = randomUUID(),
) => ({
  networkId,
  fixedIps,
  projectId: 'owner',
  name: `port of ${deviceId}`,
  deviceId,
  deviceOwner: PORT_OWNER.vip,
})

async function rejectsWith(t: Test, promise: Promise<unknown>, kind: new () => Error, about = kind.name) {
  const error = await promise.then(
    () => null,
    error => error,
  )
  t.ok(error instanceof kind, `${about}: ${error}`)
}

t.test('200 concurrent calls in a /24 get 200 addresses, and the 254th call fails', async t => {
  const { id, subnets } = await makeNetwork(['10.1.2.0/24'])
  const ask = () => driver.ensurePort(request(id, [{ subnetId: subnets[0]! }]))
  const ports = await Promise.all(Array.from({ length: 200 }, ask))
  const more = await Promise.all(Array.from({ length: 53 }, ask))
  const addresses = [...ports, ...more].map(port => port.fixedIps[0]!.address)
  t.equal(new Set(addresses).size, 253)
  for (const excluded of ['10.1.2.0', '10.1.2.1', '10.1.2.255']) t.notOk(addresses.includes(excluded), excluded)
  t.ok(addresses.every(address => contains(parseCidr('10.1.2.0/24')!, address)))
  t.equal(new Set([...ports, ...more].map(port => port.macAddress)).size, 253)
  t.ok(ports.every(port => /^fa:16:3e(:[0-9a-f]{2}){3}$/.test(port.macAddress)))
  await rejectsWith(t, ask(), NoAddressLeft)
  await driver.deletePort(ports[17]!.id)
  t.equal((await ask()).fixedIps[0]!.address, ports[17]!.fixedIps[0]!.address, 'the one released address is found')
  t.equal((await driver.portsOwnedBy(PORT_OWNER.vip, 0)).length, 253, 'a refused request leaves no port')
})

t.test('addresses come from anywhere in the pool, so that concurrent calls rarely collide', async t => {
  const { id, subnets } = await makeNetwork(['10.6.0.0/16'])
  const ask = () => driver.ensurePort(request(id, [{ subnetId: subnets[0]! }]))
  const ports = await Promise.all(Array.from({ length: 40 }, ask))
  const halves = ports.map(port => Number(port.fixedIps[0]!.address.split('.')[2]) < 128)
  t.strictSame(new Set(halves), new Set([true, false]))
})

t.test('repeated and concurrent identical requests get the same port', async t => {
  const { id, subnets } = await makeNetwork(['10.1.3.0/24', 'fd00:1::/64'])
  const same = request(
    id,
    subnets.map(subnetId => ({ subnetId })),
  )
  const ports = await Promise.all(Array.from({ length: 20 }, () => driver.ensurePort(same)))
  t.equal(new Set(ports.map(port => port.id)).size, 1)
  t.strictSame(
    ports[0]!.fixedIps.map(fixedIp => fixedIp.subnetId),
    subnets,
    'addresses come in the requested order',
  )
  t.match(ports[0]!.fixedIps[1]!.address, /^fd00:1::/)
  const { rows } = await db.raw('SELECT count(*) FROM fixed_ip WHERE subnet_id = ANY(?)', [subnets])
  t.equal(rows[0].count, 2)
  t.strictSame(await driver.ensurePort(same), ports[0])
})

t.test('a port gets one address on a subnet that is requested later, and keeps the others', async t => {
  const { id, subnets } = await makeNetwork(['10.1.7.0/24', 'fd00:7::/64', '10.1.8.0/30'])
  const [first, second, small] = subnets as [string, string, string]
  const one = request(id, [{ subnetId: first }])
  const made = await driver.ensurePort(one)
  const both = { ...one, fixedIps: [{ subnetId: first }, { subnetId: second }] }
  const ports = await Promise.all(Array.from({ length: 10 }, () => driver.ensurePort(both)))
  for (const port of ports) {
    t.equal(port.id, made.id)
    t.equal(port.macAddress, made.macAddress)
    t.strictSame(port.fixedIps, ports[0]!.fixedIps)
  }
  t.strictSame(ports[0]!.fixedIps[0], made.fixedIps[0])
  t.match(ports[0]!.fixedIps, [{ subnetId: first }, { subnetId: second, address: /^fd00:7::/ }])
  t.equal(ports[0]!.fixedIps.length, 2)
  t.strictSame(await driver.ensurePort(one), ports[0], 'a request for fewer addresses takes none away')
  await driver.releaseAddresses(made.id, [second, randomUUID()])
  await driver.releaseAddresses(made.id, [second])
  t.strictSame((await driver.port(made.id))?.fixedIps, made.fixedIps, 'the address stays until it is released')
  const grown = await driver.ensurePort(both)

  await driver.ensurePort(request(id, [{ subnetId: small }]))
  const all = { ...one, fixedIps: subnets.map(subnetId => ({ subnetId })) }
  await rejectsWith(t, driver.ensurePort(all), NoAddressLeft)
  const elsewhere = await makeNetwork(['10.1.9.0/24'])
  const astray = { ...one, fixedIps: [{ subnetId: elsewhere.subnets[0]! }] }
  await rejectsWith(t, driver.ensurePort(astray), InvalidPortRequest, 'a subnet of another network')
  t.strictSame(await driver.ensurePort(both), grown, 'a refused request changes nothing')
})

t.test('a requested address is given unless it is taken or outside the subnet', async t => {
  const { id, subnets } = await makeNetwork(['10.1.4.0/24', 'fd00:2::/64'])
  const elsewhere = await makeNetwork(['10.1.5.0/24'])
  const [v4, v6] = subnets as [string, string]
  const ask = (subnetId: string, address: string) => driver.ensurePort(request(id, [{ subnetId, address }]))

  const port = await ask(v4, '10.1.4.9')
  t.equal(port.fixedIps[0]!.address, '10.1.4.9')
  await rejectsWith(t, ask(v4, '10.1.4.9'), AddressTaken, 'taken by another port')
  await rejectsWith(t, ask(v4, '10.1.4.1'), AddressTaken, 'the gateway')
  await rejectsWith(t, ask(v4, '10.1.4.255'), InvalidPortRequest, 'the broadcast address')
  await rejectsWith(t, ask(v4, '10.1.4.0'), InvalidPortRequest, 'the network address')
  await rejectsWith(t, ask(v4, '10.1.5.9'), InvalidPortRequest, 'outside the subnet')
  await rejectsWith(t, ask(v4, 'nonsense'), InvalidPortRequest)
  await rejectsWith(t, ask(elsewhere.subnets[0]!, '10.1.5.9'), InvalidPortRequest, 'a subnet of another network')
  await rejectsWith(t, ask(randomUUID(), '10.1.5.9'), InvalidPortRequest, 'no such subnet')
  t.equal((await ask(v6, 'FD00:2:0::0ABC')).fixedIps[0]!.address, 'fd00:2::abc', 'IPv6 in canonical form')
  await rejectsWith(t, ask(v6, 'fd00:2::abc'), AddressTaken)
  const rivals = await Promise.allSettled(Array.from({ length: 10 }, () => ask(v4, '10.1.4.77')))
  t.equal(rivals.filter(rival => rival.status === 'fulfilled').length, 1, 'one of ten concurrent requests gets it')
})

t.test('on a LAN, nobody gets the address of this machine or chooses that of another', async t => {
  const flat = { shared: true, network_type: 'flat', physical_network: 'lan' } as const
  // Of this network, this machine has the loopback address.
  const { id, subnets } = await makeNetwork(['127.0.0.0/29', '10.1.9.0/24'], flat)
  const [loopback, lan] = subnets as [string, string]
  await db('subnet').where({ id: loopback }).update({ gateway_ip: null })
  await db('allocation_pool').where({ subnet_id: loopback }).update({ first: '127.0.0.1', span: 6 })
  await db('allocation_pool').where({ subnet_id: lan }).update({ first: '10.1.9.100', last: '10.1.9.150', span: 51 })
  const ask = (subnetId: string, address: string | null, projectId: string, shared = driver) =>
    shared.ensurePort({ ...request(id, [address === null ? { subnetId } : { subnetId, address }]), projectId })

  await rejectsWith(t, ask(lan, '10.1.9.20', 'guest'), InvalidPortRequest, 'a guest, outside the pools')
  t.equal((await ask(lan, '10.1.9.120', 'guest')).fixedIps[0]?.address, '10.1.9.120', 'a guest, in a pool')
  t.equal((await ask(lan, '10.1.9.20', 'owner')).fixedIps[0]?.address, '10.1.9.20', 'the network’s own project')
  await rejectsWith(t, ask(loopback, '127.0.0.1', 'owner'), AddressTaken, 'this machine’s address')
  const all = createLocalDriver(db, { reserve: 0, project_share: 100 })
  const given = await Promise.all(Array.from({ length: 5 }, () => ask(loopback, null, 'guest', all)))
  const addresses = given.map(({ fixedIps }) => fixedIps[0]?.address).sort()
  t.strictSame(addresses, ['127.0.0.2', '127.0.0.3', '127.0.0.4', '127.0.0.5', '127.0.0.6'], 'all others are given')
  await rejectsWith(t, ask(loopback, null, 'guest', all), NoAddressLeft)
})

/** How many rows of addresses this connection has read, by scans of the table and by an index. */
const rowsRead = (trx: Knex): Promise<{ scanned: number; fetched: number }> =>
  one(
    trx,
    sql<{ scanned: number; fetched: number }>`
      SELECT seq_tup_read::float8 AS scanned, idx_tup_fetch::float8 AS fetched
        FROM pg_stat_xact_user_tables WHERE relname = 'fixed_ip'`,
  )

t.test('allocation stays fast while a subnet fills', { timeout: 300_000 }, async t => {
  // The planner's statistics must come from the ANALYZE below, not from an earlier autovacuum.
  await db.raw('ALTER TABLE fixed_ip SET (autovacuum_enabled = off)')
  const fills = [
    { cidr: '10.4.0.0/16', first: '10.4.0.2', about: 'most random addresses are free', freeOneIn: 12 },
    { cidr: '10.5.0.0/16', first: '10.5.0.2', about: 'only gaps are left', freeOneIn: 80 },
  ]
  for (const { cidr, first, about, freeOneIn } of fills) {
    const { id, subnets } = await makeNetwork([cidr])
    const [port] = await db('port')
      .insert({ network_id: id, project_id: 'owner', mac_address: 'fa:16:3e:00:00:01' })
      .returning<{ id: string }[]>('id')
    // Free addresses are spread evenly, as random allocation leaves them.
    await db.raw(
      `INSERT INTO fixed_ip (subnet_id, address, port_id)
       SELECT ?, ?::inet + n, ? FROM generate_series(0, 65532) n WHERE n % ? <> 0`,
      [subnets[0]!, first, port!.id, freeOneIn],
    )
    await db.raw('ANALYZE fixed_ip')
    const { scanned, fetched } = await inTransaction(db, async trx => {
      // A connection counts in with a transaction what it has not reported of its earlier ones.
      const before = await rowsRead(trx)
      for (let i = 0; i < 50; i++) await allocateAddress(trx, { subnetId: subnets[0]!, portId: port!.id, reserve: 64 })
      const after = await rowsRead(trx)
      return { scanned: after.scanned - before.scanned, fetched: after.fetched - before.fetched }
    })
    t.equal(scanned, 0, `${about}: the table is never scanned`)
    t.ok(fetched < 50 * 200, `${about}: 50 addresses read ${fetched} rows`)
  }
})

t.test('a caller finds their own and shared networks, an administrator all', async t => {
  const own = await makeNetwork(['10.1.6.0/24'], { project_id: 'a' })
  const shared = await makeNetwork(['10.1.7.0/24'], { project_id: 'service', shared: true })
  const port = await driver.ensurePort({ ...request(own.id, [{ subnetId: own.subnets[0]! }]), projectId: 'a' })
  const cases = [
    { caller: callerOf('a', 'member'), own: true },
    { caller: callerOf('b', 'member'), own: false },
    { caller: callerOf('b', 'admin'), own: true },
    { caller: callerOf(null), own: false },
  ]
  for (const { caller, own: visible } of cases) {
    const who = `${caller.project?.id} ${caller.roles}`
    t.equal((await driver.findNetwork(caller, own.id)) !== null, visible, `network, ${who}`)
    t.equal((await driver.findSubnet(caller, own.subnets[0]!)) !== null, visible, `subnet, ${who}`)
    t.equal((await driver.findPort(caller, port.id)) !== null, visible, `port, ${who}`)
    t.ok(await driver.findNetwork(caller, shared.id), `shared network, ${who}`)
    t.ok(await driver.findSubnet(caller, shared.subnets[0]!), `subnet of the shared network, ${who}`)
    for (const id of ['nonsense', '', randomUUID()]) {
      t.equal(await driver.findNetwork(caller, id), null)
      t.equal(await driver.findSubnet(caller, id), null)
      t.equal(await driver.findPort(caller, id), null)
    }
  }
  t.strictSame((await driver.network(own.id))?.subnetIds, own.subnets)
  t.equal((await driver.subnets([own.subnets[0]!, 'nonsense', randomUUID()])).length, 1)
})

t.test('a port that a user created is bound and released, and no sweep lists it', async t => {
  const { id } = await makeNetwork(['10.1.8.0/24'])
  const [made] = await db('port')
    .insert({ network_id: id, project_id: 'owner', mac_address: 'fa:16:3e:00:00:01' })
    .returning<{ id: string }[]>('id')
  const device = { deviceId: 'lb-1', deviceOwner: 'test:bound' }
  await driver.bindPort(made!.id, device)
  await driver.bindPort(made!.id, device)
  t.match(await driver.port(made!.id), device)
  await rejectsWith(t, driver.bindPort(made!.id, { ...device, deviceId: 'lb-2' }), AddressTaken)
  t.strictSame(await driver.portsOwnedBy('test:bound', 0), [])
  t.strictSame(await driver.boundPorts('test:bound', 60), [])
  await db('port')
    .where({ id: made!.id })
    .update({ updated_at: db.raw(`now() - interval '61 seconds'`) })
  t.match(await driver.boundPorts('test:bound', 60), [{ id: made!.id, deviceId: 'lb-1' }])
  await driver.bindPort(made!.id, device)
  t.strictSame(await driver.boundPorts('test:bound', 60), [], 'the port is bound again')
  await driver.bindPort(made!.id, null)
  t.match(await driver.port(made!.id), { deviceId: '', deviceOwner: '' })
  await rejectsWith(t, driver.bindPort(randomUUID(), device), InvalidPortRequest)
  await driver.deletePort(made!.id)
  await driver.deletePort(made!.id)
  t.equal(await driver.port(made!.id), null)
})

t.test('security groups filter a VIP’s port, and a user’s port keeps its own while it is a VIP', async t => {
  const { id } = await makeNetwork(['10.1.19.0/24'])
  const groupOf = async (project_id: string) => {
    const [row] = await db('security_group').insert({ project_id }).returning<{ id: string }[]>('id')
    return row!.id
  }
  const [group, foreign] = [await groupOf('owner'), await groupOf('other')]
  const owner = callerOf('owner', 'member')
  t.strictSame(await driver.findSecurityGroup?.(owner, group), { id: group })
  for (const missing of [foreign, randomUUID(), 'x']) t.equal(await driver.findSecurityGroup?.(owner, missing), null)
  t.strictSame(await driver.findSecurityGroup?.(callerOf('admins', 'admin'), foreign), { id: foreign })

  const vip = await driver.ensurePort(request(id, []))
  t.strictSame(vip.securityGroups, [])
  await driver.setSecurityGroups(vip.id, [group])
  await driver.setSecurityGroups(vip.id, [group])
  t.strictSame((await driver.port(vip.id))?.securityGroups, [group])
  await rejectsWith(t, driver.setSecurityGroups(vip.id, [group, randomUUID()]), InvalidPortRequest)
  await rejectsWith(t, driver.setSecurityGroups(randomUUID(), []), InvalidPortRequest)
  t.strictSame((await driver.port(vip.id))?.securityGroups, [group], 'a refused change changes nothing')
  await driver.setSecurityGroups(vip.id, [])
  t.strictSame((await driver.port(vip.id))?.securityGroups, [])

  const [users] = await db('port')
    .insert({ network_id: id, project_id: 'owner', mac_address: 'fa:16:3e:00:19:01', filtered: true })
    .returning<{ id: string }[]>('id')
  await db('port_security_group').insert({ port_id: users!.id, security_group_id: group })
  const device = { deviceId: 'lb-19', deviceOwner: PORT_OWNER.vip }
  await driver.bindPort(users!.id, device)
  t.strictSame((await driver.port(users!.id))?.securityGroups, [], 'its groups were for a machine of the user')
  await driver.setSecurityGroups(users!.id, [group])
  await driver.bindPort(users!.id, device)
  t.strictSame((await driver.port(users!.id))?.securityGroups, [group], 'those of the VIP stay')
  await driver.bindPort(users!.id, null)
  t.strictSame((await driver.port(users!.id))?.securityGroups, [group])
  const [closed] = await db('port')
    .insert({ network_id: id, project_id: 'owner', mac_address: 'fa:16:3e:00:19:02', filtered: true })
    .returning<{ id: string }[]>('id')
  await driver.bindPort(closed!.id, device)
  t.strictSame((await driver.port(closed!.id))?.securityGroups, [])
  await driver.bindPort(closed!.id, null)
  t.match(await db('port').where({ id: closed!.id }).first('filtered'), { filtered: true }, 'nothing passes it again')
  await db('port').where({ id: users!.id }).update({ filtered: false, port_security_enabled: false })
  await rejectsWith(t, driver.setSecurityGroups(users!.id, [group]), InvalidPortRequest)
})

t.test('the sweep lists only ports that are old enough', async t => {
  const { id } = await makeNetwork(['10.1.9.0/24'])
  const port = await driver.ensurePort({ ...request(id, []), deviceOwner: 'test:swept' })
  t.strictSame(await driver.portsOwnedBy('test:swept', 60), [])
  await db('port')
    .where({ id: port.id })
    .update({ created_at: db.raw(`now() - interval '61 seconds'`) })
  t.strictSame(await driver.portsOwnedBy('test:swept', 60), [port])
})

t.test('an upgrade gives the public network the IPv6 subnet of a new installation', async t => {
  const built = await bootstrapNetworks(db, { cidr: '10.199.0.0/16', serviceProjectId: 'service' })
  const networkId = built.public.id
  const state = async () => ({
    subnets: await db('subnet')
      .where({ network_id: networkId })
      .orderBy('ip_version')
      .select('name', 'project_id', 'cidr', 'gateway_ip'),
    pools: await db('allocation_pool')
      .whereIn('subnet_id', db('subnet').where({ network_id: networkId }).select('id'))
      .orderBy('first')
      .select('first', 'last', 'span'),
  })
  const asNew = await state()
  await db('subnet').where({ network_id: networkId, ip_version: 6 }).delete()
  for (const time of ['first', 'second']) {
    await inTransaction(db, trx => publicIpv6.up(trx))
    t.strictSame(await state(), asNew, time)
  }
})
