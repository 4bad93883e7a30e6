import { createHash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { networkInterfaces } from 'node:os'
import t, { type Test } from 'tap'
import { PORT_OWNER } from '../../../../controller/network/driver.js'
import { ip } from '../../../../controller/network/local/ip-command.js'
import { removeLeftVisitors } from '../../../../controller/network/local/visits/visitor.js'
import { findProcesses } from '../../../../controller/process/process-identity.js'
import type { AcmeClient } from '../../../support/clients/acme-client.js'
import { FOREIGN, OWN, tokenOf } from '../../../support/clients/callers.js'
import type { Json } from '../../../support/clients/json-answers.js'
import { eventually } from '../../../support/eventually.js'
import { makePair } from '../../../support/inputs/certificates.js'
import { startChallengeMachine } from '../../../support/services/challenge-machine.js'
import type { Answer } from '../../../support/services/name-server.js'
import { dns, orderOf } from '../../../support/worlds/acme-server.js'
import { startValidation } from '../../../support/worlds/acme-validation.js'

/** What DNS says, by `name type`; a list of answers is gone through, and its last one stays. */
const records = new Map<string, Answer[]>()
const say = (name: string, type: 'A' | 'AAAA' | 'TXT', ...answers: Answer[]) => records.set(`${name} ${type}`, answers)

const world = await startValidation(
  ({ name, type }) => {
    const answers = records.get(`${name} ${type}`)
    return (answers !== undefined && answers.length > 1 ? answers.shift() : answers?.[0]) ?? []
  },
  { outsideNetworks: ['198.51.100.0/24'] },
)
t.teardown(world.stop)
const { networks, driver, fabric, nameServer } = world

/** Nothing may ever come here. */
const bait = createServer(socket => {
  baited += 1
  socket.destroy()
})
let baited = 0
bait.listen(80, '::')
await once(bait, 'listening')
t.teardown(() => bait.close())

const own = await networks.network(OWN, '10.61.0.0/24', 'fd61::/64')
const foreign = await networks.network(FOREIGN, '10.61.0.0/24', '10.62.0.0/24')
const shared = await networks.network('service', '10.63.0.0/24')
await networks.database('network').where({ id: shared.id }).update({ shared: true })
const [own4 = '', own6 = ''] = own.subnets
const [same4 = '', foreign4 = ''] = foreign.subnets

const ours = await world.machine(OWN, own4)
const ours6 = await world.machine(OWN, own6)
const theirs = await world.machine(FOREIGN, foreign4)
const common = await world.machine(FOREIGN, shared.subnets[0] ?? '')
const client = await world.client()
const stranger = await world.client(tokenOf('member', FOREIGN))

type Prepared = {
  type: string
  url: string
  token: string
  authorization: string
  path: string
  keyAuthorization: string
  digest: Buffer
}

/** Orders one identifier, and returns one of its challenges. */
async function prepare(by: AcmeClient, identifier: object, type = 'http-01'): Promise<Prepared> {
  const { authorizations } = await orderOf(by, [identifier])
  const authorization = authorizations[0] ?? ''
  const { body } = await by.send(authorization)
  const challenge = (body.challenges as Json[]).find(each => each.type === type)
  const token = String(challenge?.token)
  const keyAuthorization = by.authorizationOf(token)
  return {
    ...{ type, url: String(challenge?.url), token, authorization, keyAuthorization },
    path: `/.well-known/acme-challenge/${token}`,
    digest: createHash('sha256').update(keyAuthorization).digest(),
  }
}

/** Says that a challenge is ready, and waits until it has been settled. */
async function settled(by: AcmeClient, { url }: Prepared, limitMs = 60_000): Promise<Json> {
  const answer = await by.send(url, {})
  if (answer.status !== 200) throw new Error(answer.text)
  return eventually(
    `${url} is settled`,
    async () => {
      const { body } = await by.send(url)
      return body.status !== 'processing' && body
    },
    limitMs,
  )
}

const okFor = ({ path, keyAuthorization }: Prepared) => ({ [path]: { body: keyAuthorization } })

function failed(t: Test, challenge: Json, type: string, detail: RegExp, what: string): void {
  t.match(challenge, { status: 'invalid', error: { type: `urn:ietf:params:acme:error:${type}`, detail } }, what)
}

t.test('http-01 over a network of the project, by IPv4 and IPv6; nothing of it stays', async t => {
  for (const [machine, type, host] of [
    [ours, 'A', 'four.test'],
    [ours6, 'AAAA', 'six.test'],
  ] as const) {
    say(host, type, [machine.address])
    const challenge = await prepare(client, dns(host)[0] ?? {})
    await machine.configure({ paths: { [challenge.path]: { body: `${challenge.keyAuthorization}\n` } } })
    const done = await settled(client, challenge)
    t.match(done, { status: 'valid', validated: /^20/, token: challenge.token }, host)
    const [method, path, seenHost, source = ''] = machine.requests.at(-1)?.split(' ') ?? []
    t.same([method, path, seenHost], ['GET', challenge.path, host])
    t.match(source, host === 'four.test' ? /10\.61\.0\./ : /fd61::/, 'from an address on the network')
    const { body } = await client.send(challenge.authorization)
    t.match(body, { status: 'valid' })
    t.equal((body.challenges as Json[]).length, 1, 'only the challenge that has proven it is shown')
  }
  t.same(await driver.portsOwnedBy(PORT_OWNER.visitor, 0), [])
  t.equal((await fabric.attachedPorts()).length, 4, 'the machines')
})

t.test('an address that two projects use is that of the project that asks', async t => {
  const twin = await world.machine(FOREIGN, same4, ours.address)
  t.equal(twin.address, ours.address)
  say('twin.test', 'A', [ours.address])
  const [mine, other] = [
    await prepare(client, dns('twin.test')[0] ?? {}),
    await prepare(stranger, dns('twin.test')[0] ?? {}),
  ]
  await ours.configure({ paths: okFor(mine) })
  await twin.configure({ paths: okFor(other) })
  t.match(await settled(client, mine), { status: 'valid' })
  t.match(await settled(stranger, other), { status: 'valid' })
  const [third, fourth] = [
    await prepare(client, dns('twin.test')[0] ?? {}),
    await prepare(stranger, dns('twin.test')[0] ?? {}),
  ]
  await ours.configure({ paths: okFor(fourth) })
  await twin.configure({ paths: okFor(third) })
  failed(t, await settled(client, third), 'incorrectResponse', /404/, 'only their machine has the answer')
  failed(t, await settled(stranger, fourth), 'incorrectResponse', /404/, 'only ours has the answer')
})

t.test('a network of another project is not reached, a shared one is', async t => {
  say('theirs.test', 'A', [theirs.address])
  say('common.test', 'A', [common.address])
  const [first, second] = [
    await prepare(client, dns('theirs.test')[0] ?? {}),
    await prepare(client, dns('common.test')[0] ?? {}),
  ]
  await theirs.configure({ paths: okFor(first) })
  await common.configure({ paths: okFor(second) })
  const [refused, passed] = [await settled(client, first), await settled(client, second)]
  failed(t, refused, 'connection', /No network of the project has the address/, 'foreign')
  t.match(passed, { status: 'valid' }, 'shared')
  t.same(theirs.requests, [])
})

t.test('no name leads a validation to this machine, its link or the management network', async t => {
  const host = Object.values(networkInterfaces())
    .flatMap(found => found ?? [])
    .find(({ internal, family }) => !internal && family === 'IPv4')
  // The tenant even has networks with such addresses.
  await networks.network(OWN, '127.0.0.0/24')
  await networks.network(OWN, '169.254.169.0/24')
  const targets: [string, 'A' | 'AAAA', string[]][] = [
    ['loopback.test', 'A', ['127.0.0.1']],
    ['metadata.test', 'A', ['169.254.169.254']],
    ['management.test', 'A', ['172.30.9.1']],
    ['unspecified.test', 'A', ['0.0.0.0']],
    ['loopback6.test', 'AAAA', ['::1']],
    ['mapped.test', 'AAAA', ['::ffff:127.0.0.1']],
    ['mapped-management.test', 'AAAA', ['::ffff:172.30.9.5']],
    ['nat64.test', 'AAAA', ['64:ff9b::7f00:1']],
    ['six-to-four.test', 'AAAA', ['2002:7f00:1::']],
    ['link.test', 'AAAA', ['fe80::1']],
    ['among-others.test', 'A', [ours.address, '127.0.0.1']],
    ...(host === undefined ? [] : [['host.test', 'A', [host.address]] satisfies [string, 'A', string[]]]),
  ]
  for (const [name, type, addresses] of targets) {
    say(name, type, addresses)
    const challenge = await prepare(client, dns(name)[0] ?? {})
    failed(t, await settled(client, challenge), 'connection', /never contact/, name)
  }
  t.equal(baited, 0)
})

t.test('an address is resolved once: a name that changes its answer leads nowhere else', async t => {
  say('rebound.test', 'A', [ours.address], ['127.0.0.1'])
  const challenge = await prepare(client, dns('rebound.test')[0] ?? {})
  await ours.configure({ paths: okFor(challenge) })
  const asked = () => nameServer.questions.filter(({ name, type }) => name === 'rebound.test' && type === 'A').length
  t.match(await settled(client, challenge), { status: 'valid' })
  t.equal(asked(), 1)
  say('again.test', 'A', [ours.address], ['127.0.0.1'])
  const redirected = await prepare(client, dns('again.test')[0] ?? {})
  await ours.configure({
    paths: {
      [redirected.path]: { status: 302, headers: { Location: '/other' } },
      '/other': { body: redirected.keyAuthorization },
    },
  })
  failed(
    t,
    await settled(client, redirected),
    'connection',
    /never contact/,
    'a redirect to the same name is resolved and checked again',
  )
  t.equal(baited, 0)
})

t.test('outside networks are reached from this machine, as far as the operator says', async t => {
  const namespace = `test-outside-${randomUUID().slice(0, 8)}`
  await ip(['netns', 'add', namespace])
  t.teardown(() => ip(['netns', 'delete', namespace]))
  const leg = `out${namespace.slice(-8)}`
  await ip(['link', 'add', leg, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace])
  await ip(['address', 'add', '198.51.100.1/23', 'dev', leg])
  await ip(['link', 'set', leg, 'up'])
  for (const address of ['198.51.100.2/23', '198.51.101.2/23']) {
    await ip(['-n', namespace, 'address', 'add', address, 'dev', 'eth0'])
  }
  await ip(['-n', namespace, 'link', 'set', 'eth0', 'up'])
  const outside = await startChallengeMachine(namespace)
  t.teardown(outside.stop)
  const validate = async (name: string, address: string) => {
    say(name, 'A', [address])
    const challenge = await prepare(client, dns(name)[0] ?? {})
    await outside.configure({ paths: okFor(challenge) })
    return settled(client, challenge)
  }
  t.match(await validate('outside.test', '198.51.100.2'), { status: 'valid' })
  failed(t, await validate('beyond.test', '198.51.101.2'), 'connection', /No network/, 'not in the setting')
  failed(
    t,
    await validate('leg.test', '198.51.100.1'),
    'connection',
    /never contact/,
    'this machine, though on the network',
  )
  t.equal(outside.requests.length, 1)
})

t.test('redirects are followed to addresses that pass the same checks', async t => {
  say('from.test', 'A', [ours.address])
  say('to.test', 'A', [common.address])
  const { certificate, privateKey } = makePair({ subject: '/CN=whoever' })
  const follow = async (location: string) => {
    const challenge = await prepare(client, dns('from.test')[0] ?? {})
    await common.configure({
      paths: { '/there': { body: challenge.keyAuthorization } },
      tls: { key: privateKey, cert: certificate, alpn: ['http/1.1'] },
    })
    await ours.configure({ paths: { [challenge.path]: { status: 301, headers: { Location: location } } } })
    return settled(client, challenge)
  }
  t.match(await follow('http://to.test/there'), { status: 'valid' })
  t.match(await follow('https://to.test/there'), { status: 'valid' }, 'whatever certificate it has')
  t.match(await follow(`http://${common.address}/there`), { status: 'valid' })
  for (const location of [
    'http://127.0.0.1/there',
    'http://[::1]/there',
    'http://0x7f.1/',
    'http://169.254.169.254/latest/meta-data/',
    'http://172.30.9.1/',
    'http://[::ffff:127.0.0.1]/',
  ]) {
    failed(t, await follow(location), 'connection', /never contact/, location)
  }
  for (const location of ['http://to.test:8080/', 'ftp://to.test/', 'file:///etc/passwd', '']) {
    const challenge = await follow(location)
    t.match(challenge, { status: 'invalid' }, location)
  }
  const loop = await prepare(client, dns('from.test')[0] ?? {})
  await ours.configure({ paths: { [loop.path]: { status: 307, headers: { Location: loop.path } } } })
  const before = ours.requests.length
  failed(t, await settled(client, loop), 'connection', /redirects/, 'a loop')
  t.ok(ours.requests.length - before <= 6)
  t.equal(baited, 0)
})

t.test('a wrong, endless or missing answer fails, and says why without showing what was answered', async t => {
  say('wrong.test', 'A', [ours.address])
  const answers: [string, object, RegExp][] = [
    ['another text', { body: 'SECRET OF THE TENANT' }, /not the key authorization/],
    ['without end', { fault: 'endless' }, /not the key authorization/],
    ['404', { status: 404 }, /status 404/],
    ['500', { status: 500, body: 'SECRET OF THE TENANT' }, /status 500/],
  ]
  for (const [what, answer, detail] of answers) {
    const challenge = await prepare(client, dns('wrong.test')[0] ?? {})
    await ours.configure({ paths: { [challenge.path]: answer } })
    const done = await settled(client, challenge)
    failed(t, done, 'incorrectResponse', detail, what)
    t.notMatch(JSON.stringify(done), 'SECRET')
    t.notMatch(world.log.text(), 'SECRET')
    t.match((await client.send(challenge.authorization)).body, { status: 'invalid' })
    const again = await client.send(challenge.url, {})
    t.match(again.body, { status: 'invalid' }, 'a settled challenge stays as it is')
  }
})

t.test('tls-alpn-01: the handshake must show the digest, critical, for the one name', async t => {
  say('tls.test', 'A', [ours.address])
  type Try = { names?: string; extension?: (digest: string) => string; alpn?: string[] }
  const attempt = async (
    { names = 'DNS:tls.test', extension, alpn = ['acme-tls/1'] }: Try,
    identifier: object = dns('tls.test')[0] ?? {},
  ) => {
    const challenge = await prepare(client, identifier, 'tls-alpn-01')
    const der = `DER:0420${challenge.digest.toString('hex')}`
    const value = extension === undefined ? `critical,${der}` : extension(der)
    const { certificate, privateKey } = makePair({
      subject: '/CN=challenge',
      args: ['-addext', `subjectAltName=${names}`, ...(value === '' ? [] : ['-addext', `1.3.6.1.5.5.7.1.31=${value}`])],
    })
    await ours.configure({ tls: { key: privateKey, cert: certificate, alpn } })
    return settled(client, challenge)
  }
  t.match(await attempt({}), { status: 'valid' })
  t.match(
    await attempt({ names: `IP:${ours.address}` }, { type: 'ip', value: ours.address }),
    { status: 'valid' },
    'an address',
  )
  failed(t, await attempt({ extension: der => der }), 'incorrectResponse', /critical acmeIdentifier/, 'not critical')
  failed(
    t,
    await attempt({ extension: () => `critical,DER:0420${'00'.repeat(32)}` }),
    'incorrectResponse',
    /digest/,
    'another digest',
  )
  failed(t, await attempt({ extension: () => '' }), 'incorrectResponse', /digest/, 'no extension')
  failed(t, await attempt({ names: 'DNS:tls.test,DNS:other.test' }), 'incorrectResponse', /nothing else/, 'two names')
  failed(t, await attempt({ names: 'DNS:other.test' }), 'incorrectResponse', /nothing else/, 'another name')
  failed(t, await attempt({ alpn: ['http/1.1'] }), 'tls', /handshake|ALPN/, 'another protocol')
})

t.test('dns-01: a TXT record with the digest, also for wildcards', async t => {
  for (const [name, value] of [
    ['txt.test', 'txt.test'],
    ['wild.test', '*.wild.test'],
  ]) {
    const challenge = await prepare(client, { type: 'dns', value }, 'dns-01')
    say(`_acme-challenge.${name}`, 'TXT', ['something else', challenge.digest.toString('base64url')])
    t.match(await settled(client, challenge), { status: 'valid' }, String(value))
  }
  const wrong = await prepare(client, dns('txt.test')[0] ?? {}, 'dns-01')
  failed(t, await settled(client, wrong), 'incorrectResponse', /No TXT record/, 'that of an earlier order')
})

t.test('what cannot be found out is tried again, and a name server that recovers is enough', async t => {
  say('recovers.test', 'A', 'SERVFAIL', [ours.address])
  say('recovers.test', 'AAAA', 'SERVFAIL', [])
  say('broken.test', 'A', 'SERVFAIL')
  say('broken.test', 'AAAA', 'SERVFAIL')
  const [good, broken, nowhere] = [
    await prepare(client, dns('recovers.test')[0] ?? {}),
    await prepare(client, dns('broken.test')[0] ?? {}),
    await prepare(client, dns('nowhere.test')[0] ?? {}),
  ]
  await ours.configure({ paths: okFor(good) })
  await client.send(broken.url, {})
  await client.send(nowhere.url, {})
  t.match(await settled(client, good), { status: 'valid' })
  failed(t, await settled(client, broken), 'dns', /look-up of broken\.test failed/, 'broken')
  failed(t, await settled(client, nowhere), 'dns', /no address/, 'nowhere')
})

t.test('a project whose validations hang delays no other', async t => {
  say('silent.test', 'A', [ours.address])
  say('quick.test', 'A', [common.address])
  const slow: Prepared[] = []
  for (let at = 0; at < 8; at++) slow.push(await prepare(client, dns('silent.test')[0] ?? {}))
  await ours.configure({ paths: Object.fromEntries(slow.map(({ path }) => [path, { fault: 'silence' }])) })
  const hanging = ours.requests.length
  for (const { url } of slow) await client.send(url, {})
  await eventually('validations of the slow project hang', () => ours.requests.length >= hanging + 3, 20_000)
  const probes = findProcesses(argv => argv.some(word => word.endsWith('acme-probe.mjs')))
  t.equal(probes.length, 3)
  for (const { pid } of probes) {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    t.match(status, /^Uid:\t65534\t65534\t65534\t65534$/m)
    t.match(status, /^Gid:\t65534\t65534\t65534\t65534$/m)
    t.match(status, /^Groups:\t *$/m)
    for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb']) t.match(status, new RegExp(`^${set}:\t0+$`, 'm'), set)
    const interfaces = readFileSync(`/proc/${pid}/net/dev`, 'utf8').match(/^ *\w+(?=:)/gm) ?? []
    t.same(interfaces.map(name => name.trim()).sort(), ['eth0', 'lo'])
    t.equal(readFileSync(`/proc/${pid}/environ`, 'utf8'), '', 'no variable of the validator')
  }
  const quick = await prepare(stranger, dns('quick.test')[0] ?? {})
  await common.configure({ paths: okFor(quick) })
  const [row] = await world.manager
    .database('acme_challenge')
    .where({ status: 'processing' })
    .whereNotNull('lease_owner')
    .count()
  t.ok(Number(row?.count) <= 3, `${row?.count} of the slow project at once`)
  // One of theirs lasts ten seconds: behind any of them, it would not be settled in time.
  t.match(await settled(stranger, quick, 9_000), { status: 'valid' })
  // Their authorizations end, and with them the queue.
  for (const { authorization } of slow) await client.send(authorization, { status: 'deactivated' })
  await eventually(
    'the queue is empty',
    async () => (await world.manager.database('acme_challenge').where({ status: 'processing' })).length === 0,
    60_000,
  )
})

t.test('what a killed validator left on a network is removed', async t => {
  const port = await driver.ensurePort({
    ...{ networkId: own.id, fixedIps: [{ subnetId: own4 }], projectId: OWN, name: 'visitor' },
    ...{ deviceId: randomUUID(), deviceOwner: PORT_OWNER.visitor },
  })
  const namespace = `krater-visit-${port.id.slice(0, 11)}`
  await ip(['netns', 'add', namespace])
  await fabric.attach({
    ...{ networkId: own.id, mtu: 1500, portId: port.id, macAddress: port.macAddress, namespace, interfaceName: 'eth0' },
    addresses: port.fixedIps.map(({ address }) => address),
  })
  t.equal(await removeLeftVisitors(fabric, driver), 0, 'not while it may still be at work')
  await networks
    .database('port')
    .where({ id: port.id })
    .update({ created_at: new Date(Date.now() - 600_000) })
  t.equal(await removeLeftVisitors(fabric, driver), 1)
  t.same(await driver.portsOwnedBy(PORT_OWNER.visitor, 0), [])
  t.notOk((await fabric.attachedPorts()).includes(port.id))
  t.notMatch(await ip(['netns', 'list']), namespace)
})
