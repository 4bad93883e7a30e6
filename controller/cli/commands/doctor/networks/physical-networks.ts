import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { type Finding, fault, note, ok } from '../../../../checks/finding.js'
import { many } from '../../../../database/query.js'
import { sql } from '../../../../database/sql.js'
import { bridgeOf } from '../../../../network/local/names.js'
import {
  type DetailedLink,
  physicalInterface,
  planUplinks,
  type Uplink,
} from '../../../../network/local/uplinks/plan.js'
import { providerNetworks } from '../../../../network/local/uplinks/provider-networks.js'
import { admittedVlans, detailedLinks } from '../../../../network/local/uplinks/uplinks.js'
import { networkDriverOf, requireInstanceId } from '../../../wiring/drivers.js'
import { type Instance, openDatabase } from '../../../wiring/instance.js'
import { hasOwnOvn } from '../../../wiring/network/ovn.js'
import { blockingChain, passCommands, readRuleset } from './firewall.js'
import { type Answer, whoHas } from './frame-probe.js'

const run = promisify(execFile)
const LIMIT = { timeout: 10_000 }
/** Of each network, as many addresses are looked for on its LAN. */
const MAX_ADDRESSES = 2_000
/** A MAC address of no port, with the prefix of ports. */
const unusedMacAddress = () =>
  `fa:16:3e:${[...randomBytes(3)].map(byte => byte.toString(16).padStart(2, '0')).join(':')}`

/** Whether the networks on physical networks lead there, and whether their addresses are theirs alone. */
export async function checkPhysicalNetworks(instance: Instance): Promise<Finding[]> {
  const { onHost, switching } = networkDriverOf(instance)
  // Whoever keeps another OVN joins its networks to physical ones.
  if (!onHost || (switching === 'ovn' && !hasOwnOvn(instance))) return []
  const physicalNetworks = instance.config.network.physical_networks
  const database = openDatabase(instance, 'network', 'doctor')
  try {
    const hostLinks = await detailedLinks(null)
    const networks = await providerNetworks(database)
    const filtered = await admittedVlans(hostLinks)
    const place = { physicalNetworks, hostLinks, filtered, instance: requireInstanceId(instance.directory), bridgeOf }
    const { uplinks, problems } = planUplinks(networks, place)
    const entries = Object.entries(physicalNetworks)
    const findings = entries.map(([name, { interface: to }]) => interfaceFinding(name, to, hostLinks))
    findings.push(...sharedInterfaces(entries.map(([name, { interface: to }]) => [name, to])))
    // Those of the interface itself are above.
    const known = new Set(findings.map(({ text }) => text))
    for (const { networkId, physicalNetwork, reason, remedy } of problems) {
      if (!known.has(`${physicalNetwork}: ${reason}`)) {
        findings.push(fault('physical networks', `the network ${networkId} leads nowhere: ${reason}`, remedy))
      }
    }
    if (uplinks.some(({ kind }) => kind === 'vlan')) findings.push(await vlanFinding())
    for (const uplink of uplinks) {
      findings.push(...uplinkFindings(uplink, hostLinks))
      if (uplink.kind === 'vlan') continue
      const { network, link } = uplink
      type Row = { address: string; mac_address: string }
      const addresses = await many(
        database,
        sql<Row>`
          SELECT host(fixed_ip.address) AS address, port.mac_address::text AS mac_address
            FROM fixed_ip JOIN port ON port.id = fixed_ip.port_id
           WHERE port.network_id = ${network.id} ORDER BY fixed_ip.ordinal LIMIT ${MAX_ADDRESSES + 1}`,
      )
      const asked = addresses.slice(0, MAX_ADDRESSES).map(({ address }) => address)
      if (addresses.length > MAX_ADDRESSES) findings.push(notAllFinding(network.id))
      if (asked.length === 0) continue
      const answers = await whoHas(link.ifname, { addresses: asked, from: link.address })
      findings.push(...conflictFindings(answers, network.macAddresses))
    }
    findings.push(...(await bridgeFindings(uplinks)))
    for (const { kind, link } of uplinks) if (kind === 'frames') findings.push(...(await deliveryFinding(link)))
    return findings
  } finally {
    await database.destroy()
  }
}

const notAllFinding = (networkId: string): Finding =>
  note('addresses', `only the first ${MAX_ADDRESSES} addresses of the network ${networkId} were looked for on its LAN`)

/** Whether the firewall drops what a bridge of this machine passes on, as Docker's does. */
async function bridgeFindings(uplinks: readonly Uplink[]): Promise<Finding[]> {
  const bridges = uplinks.flatMap(uplink => (uplink.kind === 'bridge' ? [uplink] : []))
  const isFiltered = readSwitch('/proc/sys/net/bridge/bridge-nf-call-iptables') === '1'
  if (bridges.length === 0 || !isFiltered) return []
  const ruleset = await readRuleset()
  return bridges.flatMap(({ link }) => {
    const blocking = blockingChain(ruleset, 'forward', { interfaceName: link.ifname })
    if (blocking === null) return []
    const text = `the firewall drops what the bridge ${link.ifname} passes on (${blocking.chain})`
    const [first = ''] = passCommands(blocking, 'forward', link.ifname)
    return [fault('physical networks', text, `${first}; or sysctl -w net.bridge.bridge-nf-call-iptables=0`)]
  })
}

function readSwitch(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return null
  }
}

function interfaceFinding(name: string, to: string, hostLinks: readonly DetailedLink[]): Finding {
  const { fault: found } = physicalInterface(to, hostLinks)
  if (found === null) return ok('physical networks', `${name} is ${to}`)
  return fault('physical networks', `${name}: ${found.reason}`, found.remedy)
}

/** Pure. */
export function sharedInterfaces(entries: readonly (readonly [name: string, interfaceName: string])[]): Finding[] {
  const interfaces = [...new Set(entries.map(([, to]) => to))]
  return interfaces.flatMap(to => {
    const names = entries.filter(([, other]) => other === to).map(([name]) => name)
    if (names.length < 2) return []
    const text = `${names.join(' and ')} are one network: both lead to ${to}`
    return [{ ...note('physical networks', text), remedy: 'leave one of them in network.physical_networks' }]
  })
}

/** Pure. */
export function uplinkFindings(uplink: Uplink, hostLinks: readonly DetailedLink[]): Finding[] {
  const { network, link } = uplink
  const about = `the network ${network.id}`
  const end = 'hostEnd' in uplink ? uplink.hostEnd : null
  const isMissing = end !== null && !hostLinks.some(({ ifname }) => ifname === end)
  return [
    ...(isMissing
      ? [
          fault(
            'physical networks',
            `${about} is not joined to ${link.ifname}`,
            'krater up --detach, which starts the network worker; its log says what fails',
          ),
        ]
      : []),
    ...(network.mtu > link.mtu
      ? [
          fault(
            'physical networks',
            `${about} has an MTU of ${network.mtu}, and ${link.ifname} one of ${link.mtu}`,
            `ip link set dev ${link.ifname} mtu ${network.mtu}, or openstack network set --mtu ${link.mtu} ${network.id}`,
          ),
        ]
      : []),
  ]
}

/** Addresses that others have besides the ports of a network. Pure. */
export function conflictFindings(answers: readonly Answer[], own: readonly string[]): Finding[] {
  const strangers = answers.filter(({ macAddress }) => !own.includes(macAddress))
  const found = new Map(strangers.map(({ address, macAddress }) => [address, macAddress]))
  return [...found].map(([address, macAddress]) =>
    fault(
      'addresses',
      `${address} is in use twice: by a port of Krater and by the machine with the MAC address ${macAddress}`,
      'give one of them another address; allocation pools of the subnet keep Krater from addresses that others have',
    ),
  )
}

/**
 * Whether answers to the MAC address of a port come in where answers to the interface's own do. A hypervisor or a cloud
 * may deliver to no other.
 */
export async function deliveryFinding({ ifname, address }: DetailedLink): Promise<Finding[]> {
  const { stdout } = await run('ip', ['-4', '-json', 'neigh', 'show', 'dev', ifname], LIMIT)
  const neighbours = (JSON.parse(stdout) as { dst: string; lladdr?: string }[])
    .filter(({ lladdr }) => lladdr !== undefined && !lladdr.startsWith('fa:16:3e:'))
    .map(({ dst }) => dst)
    .slice(0, 20)
  if (neighbours.length === 0) return []
  const asOurselves = await whoHas(ifname, { addresses: neighbours, from: address })
  if (asOurselves.length === 0) return []
  const asPort = await whoHas(ifname, { addresses: neighbours, from: unusedMacAddress() })
  if (asPort.length > 0) return [ok('physical networks', `the network of ${ifname} delivers to VIPs`)]
  return [
    fault(
      'physical networks',
      `the network of ${ifname} does not deliver to MAC addresses other than ${address}, so no VIP on it can be reached`,
      'allow promiscuous mode and forged transmits at the port of this virtual machine (in OpenStack, disable its port security), or name another interface',
    ),
  ]
}

async function vlanFinding(): Promise<Finding> {
  const namespace = `krater-doctor-vlan-${process.pid}`
  await run('ip', ['netns', 'add', namespace], LIMIT)
  try {
    const inside = (...words: string[]) => run('ip', ['-n', namespace, 'link', 'add', ...words], LIMIT)
    await inside('name', 'veth0', 'type', 'veth', 'peer', 'name', 'veth1')
    return await inside('link', 'veth0', 'name', 'vlan0', 'type', 'vlan', 'id', '2').then(
      () => ok('kernel', 'VLAN devices'),
      () =>
        fault('kernel', 'VLAN devices: this kernel has none, and networks of type vlan need them', 'modprobe 8021q'),
    )
  } finally {
    await run('ip', ['netns', 'delete', namespace], LIMIT).catch(() => undefined)
  }
}
