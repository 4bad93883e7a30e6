import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { type HostFacts, parseFacts } from '../../../controller/compute/enrolled/enrolment/facts.js'
import { factsInput } from '../../../controller/compute/enrolled/enrolment/install.js'
import { sourceFolder } from '../../../controller/compute/source-folder.js'

const HOST_FILES = sourceFolder('controller/compute/enrolled/host')

/**
 * Runs a script of an enrolment in a network of its own, with empty folders in place of those that it writes.
 * @param before what this machine has when the script runs, as commands
 */
function onHost(before: string, script: string, input: string): Promise<string> {
  const machine = `set -e; for path in /run /var/lib; do mount -t tmpfs none $path; done; mkdir -p /run/netns /var/lib/krater-host/interfaces
ip link set lo up
${before}
exec bash -s`
  return new Promise((resolve, reject) => {
    const child = execFile(
      'unshare',
      ['--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc', 'bash', '-c', machine],
      { timeout: 60_000 },
      (error, stdout, stderr) => (error === null ? resolve(stdout) : reject(new Error(stderr, { cause: error }))),
    )
    child.stdin?.end(readFileSync(join(HOST_FILES, script), 'utf8') + input)
  })
}

const INTERFACES = `ip link add eth0 type veth peer name far0
ip address add 192.0.2.11/24 dev eth0
ip link set eth0 up
ip link add eth1 address 02:00:00:20:00:11 type veth peer name far1
ip link add far2 address 02:00:00:20:00:12 type veth peer name eth2`

const FACTS_INPUT = factsInput('192.0.2.1', { heartbeats: 5555, keyChannel: 9312 })

/** What a machine like this one says. */
const factsOf = async (before: string): Promise<HostFacts> =>
  parseFacts(await onHost(`${INTERFACES}\n${before}`, 'facts.sh', FACTS_INPUT))

t.test('an interface that an amphora has already is still one of the host', async t => {
  const facts = await factsOf(`echo 'abcde 5d2f8c1e' >/var/lib/krater-host/owner
ip netns add krater-amphora
printf '%s\n' '4 link set dev eth1 mtu 1500 up' '4 address replace 10.20.0.11/24 brd 10.20.0.255 dev eth1' \\
  '6 address replace 2001:db8:20::11/64 dev eth1' '# complete' >/var/lib/krater-host/interfaces/eth1
ip link set eth1 netns krater-amphora`)
  t.match(facts, { owner: 'abcde 5d2f8c1e', clientRoute: 'eth0' })
  t.match(
    facts.interfaces.find(({ name }) => name === 'eth1'),
    { mac: '02:00:00:20:00:11', addresses: ['10.20.0.11/24', '2001:db8:20::11/64'], isShared: false },
  )
})

t.test('the id of a host says whose it is, whichever controller host has enrolled it', async t => {
  const written = "printf 'abcde 5d2f8c1e\n' >/var/lib/krater-host/owner"
  const data = (owner: string) =>
    `${Object.entries({ step: 'begin', owner })
      .map(([name, text]) => `${name} ${Buffer.from(text).toString('base64')}\n`)
      .join('')}end\n`
  await onHost(written, 'install.sh', data('0123456789ab 5d2f8c1e'))
  await t.rejects(onHost(written, 'install.sh', data('abcde 99999999')), { message: /another controller/ })
  await onHost(written, 'undo.sh', '5d2f8c1e\n')
  await t.rejects(onHost(written, 'undo.sh', '99999999\n'), { message: /another controller/ })
})

/** Starts a server of the host that forks once it listens. @param type `udp` or `tcp` @param address with its family */
const listenerOn = (kind: 'udp' | 'tcp', address: string, port: number) =>
  `perl -MIO::Socket::IP -e '$s = IO::Socket::IP->new(LocalAddr => "${address}", LocalPort => ${port}, Proto => "${kind}", GetAddrInfoFlags => 0, ReuseAddr => 1${kind === 'tcp' ? ', Listen => 1' : ''}) or die $@; exit if fork; close STDOUT; close STDERR; sleep 30'`

t.test('programs and routes of a host that are in the way of its forwarder', async t => {
  t.match(await factsOf(''), { portsInUse: [], linkTaken: null })
  const inTheWay = [
    listenerOn('udp', '0.0.0.0', 5555),
    listenerOn('tcp', '::', 9312),
    'ip address add 169.254.77.2/24 dev eth0',
    'ip route add 169.254.77.0/30 dev eth0',
  ]
  t.match(await factsOf(inTheWay.join('\n')), {
    portsInUse: ['udp 5555', 'tcp 9312'],
    linkTaken: '169.254.77.0/30',
  })
  const beside = [
    listenerOn('tcp', '192.0.2.11', 9312),
    'ip link add krater0 type veth peer name mgmt0',
    'ip link set krater0 up',
    'ip address add 169.254.77.1/30 dev krater0',
    listenerOn('udp', '169.254.77.1', 5555),
  ]
  t.match(await factsOf(beside.join('\n')), { portsInUse: [], linkTaken: null }, 'its own forwarder is none of them')
})
