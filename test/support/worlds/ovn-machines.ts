import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { endProcesses, identityOf } from '../../../controller/process/process-identity.js'
import { startKrater } from './krater.js'
import { type OvnRequests, ovnRequests } from './ovn-krater.js'
import { takeChassisTurn } from './turns.js'
import { startVirtualMachine, type VirtualMachine } from './virtual-machine/virtual-machine.js'

const run = promisify(execFile)
const services = join(import.meta.dirname, '../services')
/** On this host; the machines have theirs at the same place. */
const WIRE = 'ovnwire'
/** The host's switch leaves them behind. */
const SWITCH_LINKS = ['br-int', 'ovs-netdev']
const PREFIX = '198.18.0'
const SOUTHBOUND_PORT = 6642
/** A packet of a network, within a tunnel. */
const MTU = 1600
const MEMORY = '768M'
/** An emulated machine loads modules slowly. */
const MODULES = 'openvswitch geneve sctp vport-geneve nfnetlink_cttimeout'
const IN_MACHINE = '/run/chassis'

/** A namespace on a machine, with a port of a network as its `eth0`. */
export type Settled = { name: string; address: string; run: VirtualMachine['run']; start: VirtualMachine['start'] }

export type OvnMachines = OvnRequests & {
  machines: readonly [VirtualMachine, VirtualMachine]
  /** Creates a port, and connects a namespace on a machine as that port. */
  settle: (machine: VirtualMachine, subnetId: string, name: string) => Promise<Settled>
}

/**
 * An OVN with three hypervisors: two virtual machines with Debian's kernel, whose datapath they use, and this host,
 * where its databases are and a Krater that uses them. The host's switch, in userspace, carries nothing but Krater's own
 * interfaces. All ends with the test.
 */
export async function startOvnMachines(t: Test): Promise<OvnMachines> {
  await takeChassisTurn(t)
  const directory = mkdtempSync(join(tmpdir(), 'ovn-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const [first, second] = await startWire(t)
  const [central, chassis] = [join(directory, 'central'), join(directory, 'chassis')]
  t.teardown(async () => {
    await endDaemons([chassis, central])
    await unplug(SWITCH_LINKS)
  })
  mkdirSync(central)
  await bash('ovn-central.sh', central, `ptcp:${SOUTHBOUND_PORT}:${PREFIX}.1`)
  await bash('ovn-chassis.sh', chassis, 'controller', `${PREFIX}.1`, `unix:${central}/sb.sock`, 'netdev')
  const machines = await Promise.all([startChassis(t, first, 2), startChassis(t, second, 3)])
  const krater = await startKrater(t, {
    KRATER_NETWORK_DRIVER: 'ovn',
    KRATER_COMPUTE_WARM_AMPHORAE: '0',
    KRATER_OVN_NORTHBOUND: `unix:${central}/nb.sock`,
    KRATER_OVN_SOUTHBOUND: `unix:${central}/sb.sock`,
    KRATER_OVN_SWITCH: `unix:${chassis}/db.sock`,
  })
  const requests = ovnRequests(await krater.api())
  return { ...requests, machines, settle: (machine, subnetId, name) => settle(requests, machine, subnetId, name) }
}

/** A cable with a plug for each machine. @returns the plugs, which are tap interfaces */
async function startWire(t: Test): Promise<[string, string]> {
  const [first, second] = [`${WIRE}1`, `${WIRE}2`]
  t.teardown(() => unplug([first, second, WIRE]))
  await ip(`link add ${WIRE} mtu ${MTU} type bridge`)
  await ip(`address add ${PREFIX}.1/24 dev ${WIRE}`)
  await ip(`link set ${WIRE} up`)
  for (const name of [first, second]) {
    await ip(`tuntap add dev ${name} mode tap`)
    await ip(`link set ${name} mtu ${MTU} master ${WIRE} up`)
  }
  return [first, second]
}

/** A virtual machine that is a hypervisor. */
async function startChassis(t: Test, tap: string, number: number): Promise<VirtualMachine> {
  const cable = { tap, macAddress: `02:00:00:00:00:0${number}`, mtu: MTU }
  const machine = await startVirtualMachine(t, { memory: MEMORY, cable })
  const address = `${PREFIX}.${number}`
  const words = [IN_MACHINE, `machine-${number}`, address, `tcp:${PREFIX}.1:${SOUTHBOUND_PORT}`, 'system']
  await machine.run(
    `modprobe -a ${MODULES}
    ip address add ${address}/24 dev eth1
    ip link set eth1 up
    bash ${services}/ovn-chassis.sh ${words.join(' ')}`,
    { seconds: 180 },
  )
  return machine
}

type Port = { id: string; mac_address: string; fixed_ips: { ip_address: string }[] }
type Subnet = { network_id: string; cidr: string }

async function settle({ net }: OvnRequests, machine: VirtualMachine, subnetId: string, name: string): Promise<Settled> {
  const { subnet } = await net<{ subnet: Subnet }>('GET', `/subnets/${subnetId}`)
  const { port } = await net<{ port: Port }>('POST', '/ports', {
    port: { name, network_id: subnet.network_id, fixed_ips: [{ subnet_id: subnetId }] },
  })
  const address = port.fixed_ips[0]?.ip_address ?? ''
  await machine.run(
    `set -e
    ip netns add ${name}
    ip link add ${name} type veth peer name eth0 address ${port.mac_address} netns ${name}
    ip link set ${name} up
    ip -n ${name} link set lo up
    ip -n ${name} link set eth0 up
    ip -n ${name} address add ${address}/${subnet.cidr.split('/')[1]} dev eth0
    vsctl="ovs-vsctl --timeout=60 --db=unix:${IN_MACHINE}/db.sock"
    $vsctl add-port br-int ${name} -- set Interface ${name} external_ids:iface-id=${port.id}
    $vsctl wait-until Interface ${name} external_ids:ovn-installed=true`,
    { seconds: 180 },
  )
  const within = `ip netns exec ${name}`
  return {
    ...{ name, address },
    run: (command, options) => machine.run(`${within} ${command}`, options),
    start: command => machine.start(`${within} ${command}`),
  }
}

/** Removes interfaces of this host. */
async function unplug(names: readonly string[]): Promise<void> {
  for (const name of names) if (existsSync(`/sys/class/net/${name}`)) await ip(`link del ${name}`)
}

const ip = (words: string) => run('ip', words.split(' '), { timeout: 10_000 })

const bash = (script: string, ...words: string[]) =>
  run('bash', [join(services, script), ...words], { timeout: 60_000 })

/** Ends the daemons that have their files there. */
async function endDaemons(directories: readonly string[]): Promise<void> {
  const files = directories.flatMap(directory =>
    existsSync(directory)
      ? readdirSync(directory)
          .filter(name => name.endsWith('.pid'))
          .map(name => join(directory, name))
      : [],
  )
  const found = files.map(file => identityOf(Number(readFileSync(file, 'utf8'))))
  await endProcesses(
    found.flatMap(identity => (identity === null ? [] : [identity])),
    { graceMs: 5_000 },
  )
}
