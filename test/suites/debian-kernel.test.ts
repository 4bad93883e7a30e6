import { randomUUID } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { Interface } from '../../amphora-agent/protocol/desired.js'
import { eventually } from '../support/eventually.js'
import { connectAgent } from '../support/worlds/amphora.js'
import { datagramListener, datagramMember, datagramPool, desireDatagrams } from '../support/worlds/datagrams-desired.js'
import { bundle } from '../support/worlds/programs.js'
import type { FabricContents } from '../support/worlds/virtual-machine/fabric-program.js'
import { startVirtualMachine, type VirtualMachine } from '../support/worlds/virtual-machine/virtual-machine.js'

t.setTimeout(1_100_000)

const root = join(import.meta.dirname, '../..')
const support = join(root, 'test/support')
/** An emulated machine is slow, and more so beside other tests. */
const LIMIT_MS = 180_000
const PORT = 7000
const VIP = '198.51.100.100'
/** What the kernel would load while it takes the agent's first rules: emulated, that takes longer than nft may. */
const MODULES = 'nf_conntrack_netlink nft_chain_nat nft_ct nft_masq nft_nat nft_numgen nft_objref nft_reject_inet sctp'
/** In the namespace `lan`: `wire` is the LAN itself, `vlan7` its VLAN 7, and `inner8` the VLAN 8 within that. */
const PREPARATION = `
  for name in lan amphora one two plain tagger; do ip netns add $name; ip -n $name link set lo up; done
  ip link add lan0 type veth peer name wire netns lan
  ip address add 192.0.2.1/24 dev lan0
  ip link set lan0 up
  ip -n lan link set wire up
  ip -n lan link add link wire name vlan7 type vlan id 7
  ip -n lan address add 198.51.100.9/24 dev vlan7
  ip -n lan link set vlan7 up
`
/** Gives each machine but the amphora its address; the agent configures the amphora. */
const ADDRESSES = `
  address() { ip -n $1 address add $2/24 dev eth0; ip -n $1 link set eth0 up; }
  address one 10.66.1.1
  address two 10.66.1.2
  address plain 192.0.2.50
  address tagger 198.51.100.12
`
/** What there is of the host's network. The tables may have become empty, but not more. */
const HOST_STATE =
  'ip -brief link; ip -brief address; ip route; ip rule; tc qdisc; nft list ruleset; ip -details link show lan0'

const macAddress = (last: number) => `fa:16:3e:00:00:0${last}`
const [vlan, flat, local] = [randomUUID(), randomUUID(), randomUUID()]
const attachment = (networkId: string, number: number, namespace: string, ...addresses: string[]) => ({
  ...{ networkId, mtu: 1500, portId: randomUUID(), macAddress: macAddress(number), addresses, namespace },
  interfaceName: namespace === 'amphora' ? `port${number}` : 'eth0',
})
const attachments = [
  attachment(vlan, 1, 'amphora', '198.51.100.11', VIP),
  attachment(local, 2, 'amphora', '10.66.1.11'),
  attachment(local, 3, 'one', '10.66.1.1'),
  attachment(local, 4, 'two', '10.66.1.2'),
  attachment(flat, 5, 'plain', '192.0.2.50'),
  attachment(vlan, 6, 'tagger', '198.51.100.12'),
]
const provider = (id: string, segmentationId: number | null) => ({
  ...{ id, mtu: 1500, physicalNetwork: 'lan', segmentationId },
  macAddresses: attachments.filter(({ networkId }) => networkId === id).map(one => one.macAddress),
})
const CONTENTS: FabricContents = {
  networks: [provider(vlan, 7), provider(flat, null)],
  physicalNetworks: { lan: { interface: 'lan0' } },
  attachments,
}
const iface = (number: number, name: string, address: string, vips: Interface['vips']): Interface => ({
  ...{ mac: macAddress(number), name, mtu: 1500, addresses: [`${address}/24`], routes: [], vips },
})
const INTERFACES = [
  iface(1, 'vip0', '198.51.100.11', [{ address: VIP, subnet: '198.51.100.0/24', gateway: null }]),
  iface(2, 'member0', '10.66.1.11', []),
]

t.test('on Debian’s own kernel, in a virtual machine', async t => {
  const vm = await startVirtualMachine(t)
  const doctor = await vm.run(`${process.execPath} ${root}/dist/krater.js doctor`, { seconds: 180 })
  t.match(doctor, /^No faults found\.$/m, 'the doctor finds no fault')
  await vm.run(`modprobe -a ${MODULES}`, { seconds: 180 })
  await vm.run(PREPARATION)
  const before = await vm.run(HOST_STATE)
  const fabric = await fabricIn(t, vm)
  t.strictSame(JSON.parse(await fabric(CONTENTS)), [], 'every network leads to its physical network')
  await vm.run(ADDRESSES)
  await t.test('SCTP to a VIP on a VLAN', async t => balanceAssociations(t, vm))
  await t.test('networks on a LAN and its VLAN', async t => useNetworks(t, vm))
  await fabric()
  t.equal(await vm.run(HOST_STATE), before, 'without the fabric, the host is as before')
})

/** @returns a function that makes the fabric of the machine, or removes it */
async function fabricIn(t: Test, vm: VirtualMachine): Promise<(contents?: FabricContents) => Promise<string>> {
  const directory = mkdtempSync(join(tmpdir(), 'vm-program-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  await bundle({ fabric: join(support, 'worlds/virtual-machine/fabric-program.ts') }, directory)
  await vm.write('/root/fabric.mjs', readFileSync(join(directory, 'fabric.mjs'), 'utf8'))
  return contents => {
    const words = contents === undefined ? '' : `'${JSON.stringify(contents)}'`
    return vm.run(`${process.execPath} /root/fabric.mjs ${words}`, { seconds: 180 })
  }
}

/** Associations are balanced, and a change breaks none that is under way. */
async function balanceAssociations(t: Test, vm: VirtualMachine): Promise<void> {
  const agent = await agentIn(t, vm)
  const places = { one: '10.66.1.1', two: '10.66.1.2' }
  let generation = 0
  const apply = (weights: Record<keyof typeof places, number>) => {
    const members = (['one', 'two'] as const).map((name, index) => {
      const place = { address: places[name], port: PORT }
      return datagramMember(index + 1, { ...place, monitor: place, weight: weights[name] })
    })
    const monitor = { type: 'SCTP' as const, delay: 2, timeout: 2, fall: 1, rise: 1, http: null, exchange: null }
    const listener = datagramListener(1, { protocol: 'sctp', port: PORT })
    const desired = { listeners: [listener], pools: [datagramPool(1, members, { monitor })] }
    return agent.apply(desireDatagrams(++generation, desired, { interfaces: INTERFACES }))
  }
  const serve = (name: keyof typeof places) => {
    const server = `perl ${support}/services/sctp-server.pl ${name} ${places[name]} ${PORT}`
    return vm.start(`ip netns exec ${name} bash -c 'echo $$ >/tmp/${name}.pid; exec ${server}'`)
  }
  const client = `ip netns exec lan perl ${support}/clients/sctp-lines.pl ${VIP} ${PORT}`
  const linesOf = (text: string) => text.split('\n').filter(Boolean)
  const answers = async (count: number) => linesOf(await vm.run(`${client} ${count}`))
  const membersOf = (lines: readonly string[]) => new Set(lines.map(line => line.split(' ')[0]))
  /** New associations reach these members and no others. */
  const reach = (what: string, ...names: string[]) =>
    eventually(
      what,
      async () => {
        const reached = membersOf(await answers(4).catch(() => []))
        return reached.size === names.length && names.every(name => reached.has(name))
      },
      LIMIT_MS,
    )

  await Promise.all([serve('one'), serve('two')])
  await apply({ one: 1, two: 1 })
  await reach('both members are up', 'one', 'two')
  const balanced = await answers(6)
  t.strictSame(
    balanced.map(line => line.split(' ')[1]),
    ['1', '2', '3', '4', '5', '6'],
    'what is said on an association is answered',
  )
  t.equal(balanced.filter(line => line.startsWith('one')).length, 3, 'new associations are balanced')

  await vm.start(`bash -c '${client} >/tmp/kept 2>&1'`)
  const kept = async () => linesOf(await vm.run('touch /tmp/kept; cat /tmp/kept'))
  const goesOn = async () => {
    const before = (await kept()).length
    await eventually('the association goes on', async () => (await kept()).length > before + 3, LIMIT_MS)
  }
  await goesOn()
  const [mine] = membersOf(await kept())
  const [own, other] = mine === 'one' ? (['one', 'two'] as const) : (['two', 'one'] as const)

  await vm.run(`kill $(cat /tmp/${other}.pid)`)
  await reach('the monitor finds the dead member', own)
  await serve(other)
  await reach('the monitor finds the member that is back', 'one', 'two')
  await apply(own === 'one' ? { one: 0, two: 1 } : { one: 1, two: 0 })
  t.strictSame(membersOf(await answers(4)), new Set([other]), 'a drained member gets no new association')
  await goesOn()
  t.strictSame(membersOf(await kept()), new Set([own]), 'and keeps its own, through all of this')
}

/** Starts the built agent in the amphora's namespace. @returns a connection to it */
async function agentIn(t: Test, vm: VirtualMachine) {
  const boot = {
    ...{ amphoraId: randomUUID(), heartbeatKey: 'ab'.repeat(32), heartbeatKeyId: 3, beatIntervalSeconds: 3 },
    healthManagers: [{ host: '127.0.0.1', port: 5555 }],
  }
  await vm.write('/root/boot.json', JSON.stringify(boot))
  await vm.write(
    '/root/agent.sh',
    `set -e
echo $$ >/root/agent.pid
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/krater
install -m 600 /root/boot.json /run/krater/boot.json
exec ${process.execPath} ${root}/dist/agent.js --boot /run/krater/boot.json >/root/agent.log 2>&1
`,
  )
  await vm.start('ip netns exec amphora unshare --mount bash /root/agent.sh')
  const pid = await eventually(
    'the agent starts',
    async () => (await vm.run('cat /root/agent.pid || true')).trim() || null,
    LIMIT_MS,
  )
  const socket = `/proc/${pid}/root/run/krater/agent.sock`
  const wait = `for i in {1..600}; do [ ! -S ${socket} ] || exit 0; sleep 0.2; done; cat /root/agent.log >&2; exit 1`
  await vm.run(wait, { seconds: 150 })
  const agent = await connectAgent(await vm.forward(socket))
  t.teardown(agent.end)
  return agent
}

/** Machines of a network reach those on its part of the LAN and no others. */
async function useNetworks(t: Test, vm: VirtualMachine): Promise<void> {
  const within = (name: string) => (command: string) => vm.run(`ip netns exec ${name} ${command}`)
  const [lan, tagger] = [within('lan'), within('tagger')]
  await vm.run('ip -n lan address add 192.0.2.9/24 dev wire')
  await lan('ping -c 1 -W 10 192.0.2.50')
  await lan('ping -c 1 -W 10 -I vlan7 198.51.100.12')
  await within('plain')('ping -c 1 -W 10 192.0.2.1')
  t.pass('a machine of each network is reached, and reaches the host')
  await t.rejects(
    lan('ping -c 1 -W 5 -I wire 198.51.100.12'),
    /100% packet loss/,
    'a VLAN is not reached without its tag',
  )
  await vm.run(`
    ip -n lan link add link vlan7 name inner8 type vlan id 8
    ip -n lan address add 203.0.113.9/24 dev inner8
    ip -n lan link set inner8 up
    ip -n tagger link add link eth0 name tagged type vlan id 8
    ip -n tagger address add 198.51.100.12/32 dev tagged
    ip -n tagger link set tagged up
    ip -n tagger route add 203.0.113.0/24 dev tagged
  `)
  // With the machine's own addresses, so that nothing but the tag is wrong. ARP fails, so ping does.
  await tagger('ping -c 2 -W 2 203.0.113.9 || true')
  const received = await lan('cat /sys/class/net/inner8/statistics/rx_packets')
  t.equal(received.trim(), '0', 'a frame with a tag of its own goes nowhere')
  await tagger('ping -c 1 -W 10 198.51.100.9')
}
