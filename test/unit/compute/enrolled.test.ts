import fc from 'fast-check'
import t from 'tap'
import { judgeSurvey } from '../../../amphora-agent/enrolled/survey.js'
import { type HostFacts, parseFacts } from '../../../controller/compute/enrolled/enrolment/facts.js'
import { checkedChanges } from '../../../controller/compute/enrolled/enrolment/install.js'
import { type KnownNetwork, matchInterfaces, refusals } from '../../../controller/compute/enrolled/enrolment/judge.js'
import { judgeOwner } from '../../../controller/compute/enrolled/enrolment/owner.js'
import type { HostState } from '../../../controller/compute/enrolled/hosts.js'
import { judgeAnswers } from '../../../controller/compute/enrolled/inspect-host.js'
import type { Answer } from '../../../controller/network/driver.js'

const LINES = [
  'uid 0',
  'system.ID debian',
  'system.VERSION_ID 12',
  'architecture x86_64',
  'hostname web-1',
  'time 1795798981',
  'init systemd',
  'memory 2048000',
  'disk 1040372',
  ...['apt-get', 'dpkg', 'ip', 'nsenter', 'unshare', 'setpriv', 'perl', 'sshd', 'bash'].map(name => `program ${name}`),
  'namespaces yes',
  'sshd.includes yes',
  'route.client eth0',
  'route.default eth0',
  'interface eth0 02:00:00:10:00:11',
  'interface eth1 02:00:00:20:00:11',
  'interface eth2 02:00:00:30:00:11 below dark',
  'address eth0 10.10.0.11/24',
  'address eth1 10.20.0.11/24',
  'address eth1 2001:db8:20::11/64',
]

const textOf = (lines: readonly string[]) => [...lines, 'end', ''].join('\n')
const factsWith = (...lines: string[]) => parseFacts(textOf([...LINES, ...lines]))
/** The facts, with other values for some names. */
const factsBut = (changes: Readonly<Record<string, string>>) =>
  parseFacts(
    textOf(
      LINES.map(line => {
        const [name = ''] = line.split(' ')
        return name in changes ? `${name} ${changes[name]}` : line
      }),
    ),
  )

const ASKED = { isOurs: false, processor: 'x64', now: 1795798990 }
const LAN: KnownNetwork = { id: 'n1', name: 'lan', cidrs: ['10.20.0.0/24'] }
const SIX: KnownNetwork = { id: 'n6', name: 'six', cidrs: ['2001:db8:20::/64'] }

t.test('facts of a host', async t => {
  const facts = factsWith()
  t.match(facts, { system: 'debian', version: '12', hostname: 'web-1', owner: null, clientRoute: 'eth0' })
  t.same(facts.interfaces, [
    { name: 'eth0', mac: '02:00:00:10:00:11', addresses: ['10.10.0.11/24'], isShared: false, hasCarrier: true },
    {
      name: 'eth1',
      mac: '02:00:00:20:00:11',
      addresses: ['10.20.0.11/24', '2001:db8:20::11/64'],
      isShared: false,
      hasCarrier: true,
    },
    { name: 'eth2', mac: '02:00:00:30:00:11', addresses: [], isShared: true, hasCarrier: false },
  ])
  for (const [what, text] of Object.entries({
    'facts that end early': LINES.join('\n'),
    'an interface with a strange name': textOf([...LINES, 'interface $(reboot) 02:00:00:10:00:11']),
    'an address that is none': textOf([...LINES, 'address eth1 10.20.0.999/24']),
    'a line that is no fact': textOf([...LINES, '<html>']),
  })) {
    t.throws(() => parseFacts(text), { message: /Nothing was changed there/ }, `${what} are refused`)
  }
  fc.assert(
    fc.property(fc.array(fc.string()), fc.nat(LINES.length), (strange, at) => {
      try {
        const { interfaces } = parseFacts(textOf([...LINES.slice(0, at), ...strange, ...LINES.slice(at)]))
        return interfaces.every(({ name, mac }) => /^[\w.@:-]+$/.test(name) && /^[0-9a-f:]{17}$/.test(mac))
      } catch (error) {
        return error instanceof Error && error.message.includes('cannot be understood')
      }
    }),
  )
})

t.test('hosts that cannot be enrolled', async t => {
  const why = (facts: HostFacts, asked = ASKED) => refusals(facts, asked).join(' ')
  t.equal(why(factsWith()), '')
  t.equal(
    why(factsWith('owner abcde 5d2f8c1e', 'account krater', 'path /opt/krater'), { ...ASKED, isOurs: true }),
    '',
    'an interrupted enrolment goes on',
  )
  t.match(why(factsWith('account krater')), /an account krater/)
  t.match(why(factsWith('runs haproxy', 'enabled haproxy')), /^It runs haproxy itself/)
  t.notMatch(why(factsWith('runs haproxy', 'enabled haproxy')), /starts haproxy/, 'said once')
  t.match(why(factsWith('enabled keepalived')), /It starts keepalived itself/)
  t.match(why(factsBut({ 'system.ID': 'fedora', 'system.VERSION_ID': '40' })), /runs fedora 40, not Debian 12 or 13/)
  t.match(why(factsBut({ 'system.VERSION_ID': '11' })), /runs Debian 11, not/)
  t.match(why(factsBut({ init: 'other' })), /does not run systemd/)
  t.match(why(factsBut({ 'sshd.includes': 'no' })), /does not include/)
  t.match(why(factsBut({ architecture: 'aarch64' })), /processor \(aarch64\)/)
  t.match(why(factsBut({ disk: '100000' })), /97 MiB of free disk/)
  t.match(why(factsWith('port udp 5555')), /A program on it listens on port udp\/5555/)
  t.match(why(factsWith('taken 169.254.77.0/30')), /a route into 169\.254\.77\.0\/30/)
  t.match(why(factsBut({ time: '1795790000' })), /clock is 8990 s off/)
})

t.test('whose a host is', async t => {
  const id = (digit: string) => `${digit.repeat(8)}-1111-4111-8111-111111111111`
  const host = (digit: string, state: HostState = 'enrolling') => ({
    ...{ id: id(digit), name: `host-${digit}`, address: `192.0.2.${digit}`, state },
    hostKey: Buffer.from(`key ${digit}`),
  })
  const installations = ['0123456789ab', 'abcde']
  const judge = (owner: string | null, hosts: ReturnType<typeof host>[], atAddress?: (typeof hosts)[number]) =>
    judgeOwner(owner, { installations, hosts, hostKey: Buffer.from('key 1'), atAddress })
  const begun = host('1')

  t.same(judge(null, []), { id: null, forgotten: null }, 'a new one')
  t.same(judge(null, [begun], begun), { id: id('1'), forgotten: null }, 'killed before anything was written there')
  for (const by of ['0123456789ab', 'abcde', 'fffff']) {
    t.same(judge(`${by} ${id('1')}`, [begun], begun), { id: id('1'), forgotten: null }, `begun by ${by}, it goes on`)
  }
  t.same(judge(`fffff ${id('1')}`, [begun]), { id: id('1'), forgotten: null }, 'also under another address')
  t.same(judge(`abcde ${id('7')}`, [begun]), { id: null, forgotten: id('7') }, 'forgotten here')
  t.same(judge(`abcde ${id('7')}`, [begun], begun), { id: id('1'), forgotten: id('7') }, 'forgotten, and begun anew')
  const why = (...words: Parameters<typeof judge>) => {
    const judged = judge(...words)
    return 'problem' in judged ? judged.problem : ''
  }
  t.match(why(`abcde ${id('1')}`, [host('1', 'free')]), /^It is enrolled already, as host-1 \(192\.0\.2\.1\), and free/)
  t.match(why(`abcde ${id('2')}`, [host('2')]), /says that it is host-2 .*another host key/)
  t.match(why(`fffff ${id('7')}`, [begun]), /by another installation of Krater \(fffff\)/)
  t.match(why('abcde 7', [begun]), /by another installation/, 'an id that is none')
  t.match(why(`abcde ${id('1')}`, [begun, host('2')], host('2')), /krater amphora retire host-2 --forget/)
})

t.test('which interfaces lead to which networks', async t => {
  const facts = factsWith()
  const match = (networks: readonly KnownNetwork[], ...asked: { network: string; mac: string }[]) => {
    const matched = matchInterfaces(facts, networks, asked)
    return 'given' in matched
      ? matched.given.map(one => `${one.networkName} ${one.name}`).join()
      : matched.problems.join(' ')
  }
  t.equal(match([LAN]), 'lan eth1', 'by an address in a subnet')
  t.equal(match([SIX]), 'six eth1', 'by an IPv6 address')
  t.match(match([{ ...LAN, cidrs: ['192.0.2.0/24'] }]), /--interface NETWORK=MAC. It has eth1 02:00:00:20:00:11, eth2/)
  t.equal(
    match([LAN], { network: 'n1', mac: '02:00:00:20:00:11' }),
    'lan eth1',
    'by MAC address, and the id of a network',
  )
  t.match(match([LAN], { network: 'lan', mac: '02:00:00:10:00:11' }), /eth0 leads to this controller/)
  t.match(match([LAN], { network: 'lan', mac: '02:00:00:30:00:11' }), /eth2 belongs to a bridge or a bond/)
  t.match(match([LAN], { network: 'lan', mac: '02:00:00:99:00:11' }), /no interface with the MAC address/)
  t.match(match([LAN], { network: 'wan', mac: '02:00:00:20:00:11' }), /no network wan/)
  t.match(match([{ ...LAN, cidrs: ['10.10.0.0/24'] }]), /--interface/, 'never the way to the controller')
})

t.test('what others on the network of a load balancer see of its host', async t => {
  const judged = (own: Answer, witness: Answer) =>
    judgeAnswers('10.20.0.143', new Map([['10.20.0.143', own] as const, ['10.20.0.1', witness] as const]))
  t.equal(judged('answers', 'answers'), null, 'its kernel answers, whatever HAProxy does')
  t.match(judged('silent', 'answers'), { serves: false, finding: /but 10\.20\.0\.1 does/ })
  t.equal(judged('silent', 'silent'), null, 'nobody answers: this controller may be blind')
  t.equal(judged('unknown', 'answers'), null, 'it may not have been asked')
})

t.test('what a wiped host must not have', async t => {
  const empty = {
    leftBehind: [],
    files: [],
    programs: [],
    network: { links: [], addresses: [], routes: [] },
    tables: [],
  }
  const own = {
    ...empty,
    network: {
      ...empty.network,
      addresses: [{ device: 'mgmt0', family: 4 as const, address: '169.254.77.2', prefix: 30 }],
    },
    tables: ['inet krater_management'],
  }
  t.same(judgeSurvey(own), [])
  t.same(
    judgeSurvey({
      leftBehind: ['the process 7 still runs'],
      files: ['/var/lib/krater/desired.json'],
      programs: ['haproxy'],
      network: {
        links: [],
        addresses: [{ device: 'eth1', family: 4, address: '10.20.0.143', prefix: 32 }],
        routes: [
          { device: 'eth1', family: 4, destination: '0.0.0.0/0', gateway: '10.20.0.1', table: '100', source: null },
        ],
      },
      tables: ['inet krater_datagrams'],
    }),
    [
      'the process 7 still runs',
      'the file /var/lib/krater/desired.json is there',
      'haproxy runs',
      'eth1 has the address 10.20.0.143',
      'a route leads to 0.0.0.0/0 by eth1',
      'nftables has the table inet krater_datagrams',
    ],
  )
})

t.test('what a host says was changed there', async t => {
  const changes = ['masked haproxy.service absent', 'package haproxy', 'file /opt/krater/node', 'sshd', 'service']
  t.same(checkedChanges([...changes, 'line /root/.ssh/authorized_keys ssh-ed25519 AAAA krater-operator']).length, 6)
  t.throws(() => checkedChanges(['file /a\u0000b']), { message: /but "file \/a\\u0000b"/ })
  t.throws(() => checkedChanges(['file \u001b[2J']), { message: /\\u001b/ })
  t.throws(() => checkedChanges([`file ${'x'.repeat(1001)}`]), { message: /does not say/ })
  t.throws(() => checkedChanges(Array.from({ length: 1001 }, () => 'sshd')), { message: /too many lines/ })
})
