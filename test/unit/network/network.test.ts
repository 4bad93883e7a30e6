import fc from 'fast-check'
import t from 'tap'
import { ApiError } from '../../../controller/http/errors.js'
import {
  cidrsOutside,
  contains,
  defaultGateway,
  defaultPools,
  formatAddress,
  hostRange,
  normaliseAddress,
  parseAddress,
  parseCidr,
  poolSpan,
} from '../../../controller/network/addresses.js'
import { paginationLinks, parseListing, pickFields } from '../../../controller/network/api/listing.js'
import { ipBatch } from '../../../controller/network/local/ip-command.js'
import { createNoopNetworkDriver } from '../../../controller/network/noop/driver.js'

const domain = { id: 'default', name: 'Default' }
const caller = {
  user: { id: 'user', name: 'user', domain },
  project: { id: 'p', name: 'p', domain },
  domain: null,
  system: false,
  roles: ['member'],
  expiresAt: new Date(Date.now() + 3_600_000),
}

const statusOf = (act: () => unknown): number | null => {
  try {
    act()
    return null
  } catch (error) {
    return error instanceof ApiError ? error.status : 500
  }
}

t.test('addresses', async t => {
  await t.test('have one canonical form', async t => {
    const cases: [text: string, expected: string | null][] = [
      ['10.0.0.1', '10.0.0.1'],
      ['FD00:0::1', 'fd00::1'],
      ['fd00:0:0:1:0:0:0:1', 'fd00:0:0:1::1'],
      ['0177.0.0.1', null],
      ['10.1', null],
      ['1', null],
      ['fe80::1%eth0', null],
      ['10.0.0.1/24', null],
      ['', null],
    ]
    for (const [text, expected] of cases) t.equal(normaliseAddress(text), expected, text)
  })

  await t.test('convert to numbers and back', async () => {
    const v4 = fc.ipV4().map(text => ({ text, version: 4 as const }))
    const v6 = fc.ipV6().map(text => ({ text, version: 6 as const }))
    fc.assert(
      fc.property(fc.oneof(v4, v6), ({ text, version }) => {
        const parsed = parseAddress(text)
        return (
          parsed?.version === version &&
          parseAddress(formatAddress(version, parsed.value))?.value === parsed.value &&
          contains(parseCidr(`${text}/${version === 4 ? 20 : 64}`)!, text)
        )
      }),
    )
  })

  await t.test('lose the bits below the prefix in CIDR notation', async t => {
    t.equal(parseCidr('10.1.2.3/16')?.text, '10.1.0.0/16')
    t.equal(parseCidr('FD00:1::5/64')?.text, 'fd00:1::/64')
    for (const text of [
      '10.0.0.0',
      '10.0.0.0/33',
      'fd00::/129',
      '10.0.0.0/-1',
      '10.0.0.0/1e1',
      '/8',
      'x/8',
      '10.0.0.0/8/8',
    ]) {
      t.equal(parseCidr(text), null, text)
    }
    fc.assert(fc.property(fc.string(), text => parseCidr(text) === null || parseCidr(parseCidr(text)!.text) !== null))
  })

  await t.test('that are in none of some CIDRs are in one of those outside them', async t => {
    t.same(cidrsOutside(4, []), ['0.0.0.0/0'])
    t.same(cidrsOutside(4, ['10.0.0.0/8', '0.0.0.0/0']), [])
    t.same(cidrsOutside(4, ['fd00::/8']), ['0.0.0.0/0'])
    t.same(cidrsOutside(4, ['64.0.0.0/2', '128.0.0.0/1']), ['0.0.0.0/2'])
    t.equal(cidrsOutside(6, ['2001:db8::1/128']).length, 128)
    const cidr = fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 })).map(([base, prefix]) => `${base}/${prefix}`)
    const isIn = (cidrs: readonly string[], address: string) =>
      cidrs.filter(text => contains(parseCidr(text)!, address)).length
    fc.assert(
      fc.property(fc.array(cidr, { maxLength: 10 }), fc.ipV4(), (cidrs, other) =>
        [
          other,
          ...cidrs
            .map(text => parseCidr(text)!)
            .flatMap(({ first, last }) =>
              [first, first - 1n, last, last + 1n]
                .filter(value => value >= 0n && value < 1n << 32n)
                .map(value => formatAddress(4, value)),
            ),
        ].every(address => isIn(cidrsOutside(4, cidrs), address) === (isIn(cidrs, address) === 0 ? 1 : 0)),
      ),
    )
  })

  await t.test('exclude network, broadcast and gateway from a subnet’s default pools', async t => {
    const cases: [cidr: string, gateway: string | null, pools: string[]][] = [
      ['10.0.0.0/24', '10.0.0.1', ['10.0.0.2-10.0.0.254']],
      ['10.0.0.0/24', null, ['10.0.0.1-10.0.0.254']],
      ['10.0.0.0/24', '10.0.0.254', ['10.0.0.1-10.0.0.253']],
      ['10.0.0.0/24', '10.0.0.9', ['10.0.0.1-10.0.0.8', '10.0.0.10-10.0.0.254']],
      ['10.0.0.0/30', '10.0.0.1', ['10.0.0.2-10.0.0.2']],
      ['10.0.0.0/31', '10.0.0.0', ['10.0.0.1-10.0.0.1']],
      ['10.0.0.0/32', null, ['10.0.0.0-10.0.0.0']],
      ['10.0.0.0/32', '10.0.0.0', []],
      ['fd00::/64', 'fd00::1', ['fd00::2-fd00::ffff:ffff:ffff:ffff']],
    ]
    for (const [text, gateway, expected] of cases) {
      const pools = defaultPools(parseCidr(text)!, gateway).map(({ start, end }) => `${start}-${end}`)
      t.strictSame(pools, expected, `${text} ${gateway}`)
    }
    t.equal(defaultGateway(parseCidr('10.0.0.0/24')!), '10.0.0.1')
    t.equal(poolSpan({ start: '10.0.0.2', end: '10.0.0.254' }), 253)
    t.equal(poolSpan({ start: 'fd00::2', end: 'fd00::ffff:ffff:ffff:ffff' }), 2 ** 32)
    fc.assert(
      fc.property(fc.ipV4(), fc.integer({ min: 8, max: 29 }), fc.nat(1000), (base, prefix, offset) => {
        const cidr = parseCidr(`${base}/${prefix}`)!
        const { first, last } = hostRange(cidr)
        const gateway = formatAddress(4, first + (BigInt(offset) % (last - first + 1n)))
        const size = defaultPools(cidr, gateway).reduce((sum, pool) => sum + poolSpan(pool), 0)
        return BigInt(size) === last - first
      }),
    )
  })
})

t.test('the query string of a list is parsed, and its links repeat it', async t => {
  t.match(
    parseListing('name=a&tenant_id=p&name=b&fields=id&sort_key=name&sort_dir=desc&limit=5&marker=m&page_reverse=True'),
    {
      filters: new Map([
        ['name', ['a', 'b']],
        ['project_id', ['p']],
      ]),
      fields: ['id'],
      sorts: [{ key: 'name', descending: true }],
      limit: 5,
      marker: 'm',
      reverse: true,
    },
  )
  t.strictSame(parseListing('sort_key=name&sort_key=name').sorts, [{ key: 'name', descending: false }])
  for (const query of [
    'limit=1.5',
    'limit=x',
    'sort_key=a&sort_dir=asc&sort_dir=asc',
    'sort_key=a&sort_dir=x',
    'page_reverse=2',
  ]) {
    t.equal(
      statusOf(() => parseListing(query)),
      400,
      query,
    )
  }
  const page = { items: [{ id: '1' }, { id: '2' }], hasNext: true, hasPrevious: true }
  const query = 'limit=2&name=a%20b&marker=0'
  t.strictSame(paginationLinks(parseListing(query), page, 'http://x/v2.0/ports', query), [
    { rel: 'next', href: 'http://x/v2.0/ports?limit=2&name=a+b&marker=2' },
    { rel: 'previous', href: 'http://x/v2.0/ports?limit=2&name=a+b&marker=1&page_reverse=True' },
  ])
  t.strictSame(
    paginationLinks(parseListing('name=a'), page, 'http://x', 'name=a'),
    [],
    'a list without a limit has no links',
  )
  t.strictSame(pickFields({ id: 'a', name: 'b' }, ['name', 'toString']), { name: 'b' })
})

t.test('the noop driver finds every object and gives stable ids and addresses', async t => {
  const driver = createNoopNetworkDriver()
  const id = 'aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee'
  t.match(await driver.findNetwork(caller, id), { id })
  t.match(await driver.findSubnet(caller, id), { id, ipVersion: 4 })
  t.match(await driver.findPort(caller, id), { id, deviceId: '', fixedIps: [{ address: /^203\.0\.113\.\d+$/ }] })
  t.strictSame(await createNoopNetworkDriver().port(id), await driver.port(id), 'the same port in every process')

  const network = (await driver.network(id))!
  t.ok(network.subnetIds.includes('any other'), 'the network contains any subnet')
  t.strictSame(
    (await driver.subnets(network.subnetIds)).map(subnet => [subnet.ipVersion, subnet.cidr]),
    [
      [4, '0.0.0.0/0'],
      [6, '::/0'],
    ],
  )
  const fixedIps = [...network.subnetIds].map(subnetId => ({ subnetId }))
  const request = { networkId: id, fixedIps, projectId: 'p', name: 'vip', deviceId: 'lb', deviceOwner: 'Octavia' }
  const port = await driver.ensurePort(request)
  t.match(port, { name: 'vip', networkId: id, macAddress: /^fa:16:3e(:[0-9a-f]{2}){3}$/ })
  t.match(port.fixedIps[0]!.address, /^203\.0\.113\./)
  t.match(port.fixedIps[1]!.address, /^2001:db8::/)
  t.ok(parseAddress(port.fixedIps[1]!.address))
  t.strictSame(await driver.ensurePort(request), port)
  t.not((await driver.ensurePort({ ...request, deviceId: 'lb2' })).id, port.id)
  const desired = await driver.ensurePort({ ...request, fixedIps: [{ subnetId: id, address: '198.18.33.33' }] })
  t.equal(desired.fixedIps[0]!.address, '198.18.33.33')
  await driver.bindPort(id, null)
  await driver.deletePort(id)
  t.strictSame([await driver.portsOwnedBy('Octavia', 0), await driver.portsOf('lb')], [[], []])
})

t.test('ip commands cannot contain a second line, quotes or substitutions', async t => {
  for (const line of [
    'link delete dev a\nlink delete dev lo',
    'link show "x',
    'link show $HOME',
    'link show `id`',
    '',
  ]) {
    await t.rejects(ipBatch(null, [line]), /Invalid line/, JSON.stringify(line))
  }
})
