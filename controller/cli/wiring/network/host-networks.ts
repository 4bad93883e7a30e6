import { readdirSync } from 'node:fs'
import type { Configuration } from '../../../config/schema.js'
import type { BuiltInNetwork, BuiltInNetworks } from '../../../network/bootstrap.js'
import type { NetworkDriver } from '../../../network/driver.js'
import { networkDriver } from '../../../network/drivers.js'
import type { Fabric } from '../../../network/local/fabric.js'
import { forwards } from '../../../network/local/host/forwarding.js'
import { stopCopies } from '../../../network/local/host/heartbeat-copies.js'
import { guardHostLeg, guardTable, type OpenPort, unguardHostLeg } from '../../../network/local/host/host-guard.js'
import { closeOutside, guardOutside, outsideTable } from '../../../network/local/host/outside.js'
import { runTool } from '../../../network/local/ip-command.js'
import type { Instance } from '../instance.js'

const prefixOf = (cidr: string): string => cidr.split('/')[1] ?? '32'

/** Name of a host interface: at most 15 characters, unique to the instance. */
export const hostLegName = (instanceId: string, network: 'mgmt' | 'pub'): string => `kr${instanceId}-${network}`

/** A network, and the host's address on each of its subnets. */
type Leg = { networkId: string; mtu: number; subnets: readonly { cidr: string; address: string }[] }

/**
 * Ensures the host's interface on the management network, on which amphorae reach the health manager, the key channel,
 * with an external key manager the gateway to it, and nothing else. A reboot removes it. Safe to repeat.
 */
async function ensureManagementInterface(
  fabric: Fabric,
  instanceId: string,
  leg: Leg,
  {
    health_manager,
    key_manager,
    load_balancer,
  }: Pick<Configuration, 'health_manager' | 'key_manager' | 'load_balancer'>,
): Promise<void> {
  const open: OpenPort[] = [
    { protocol: 'udp', port: health_manager.port },
    { protocol: 'tcp', port: key_manager.channel.port },
    ...(load_balancer.key_manager_url === undefined
      ? []
      : [{ protocol: 'tcp' as const, port: load_balancer.key_manager_gateway_port }]),
  ]
  await ensureHostLeg(fabric, hostLegName(instanceId, 'mgmt'), leg, { open, isolated: true })
}

/**
 * Ensures the host's interface on the public network, on which tenants' machines reach open ports of this host, and through
 * which they reach what the host reaches, if `network.outside` says so. Safe to repeat.
 */
async function ensurePublicInterface(
  fabric: Fabric,
  instanceId: string,
  leg: Leg,
  { load_balancer, network }: Pick<Configuration, 'load_balancer' | 'network'>,
): Promise<void> {
  const open: OpenPort[] = [
    ...load_balancer.host_member_ports.map(port => ({ protocol: 'tcp', port }) as const),
    ...load_balancer.host_member_udp_ports.map(port => ({ protocol: 'udp', port }) as const),
  ]
  const interfaceName = hostLegName(instanceId, 'pub')
  await guardOutside({
    interfaceName,
    cidrs: leg.subnets.map(({ cidr }) => cidr),
    enabled: network.outside ?? false,
    denied: network.outside_denied,
  })
  await ensureHostLeg(fabric, interfaceName, leg, { open, isolated: false })
}

/** Whether the host's firewall still has tables of the instance, as after the loss of its namespace alone. */
export async function leftOnHost(instanceId: string): Promise<boolean> {
  // Without nft there are none.
  const tables = await runTool(['nft', 'list', 'tables'], '').catch(() => '')
  return tables.includes(` kr${instanceId}_`)
}

/**
 * Removes what remains of the host's interfaces, besides the interfaces themselves.
 * @returns the firewall tables of others for which packet forwarding stays on
 */
export async function removeHostInterfaces(instanceId: string): Promise<string[]> {
  for (const network of ['mgmt', 'pub'] as const) await unguardHostLeg(hostLegName(instanceId, network))
  await stopCopies(hostLegName(instanceId, 'mgmt'))
  return closeOutside(hostLegName(instanceId, 'pub'))
}

/** Connects the host to the built-in networks, behind its rules. Safe to repeat. */
export async function ensureHostInterfaces(
  fabric: Fabric,
  instanceId: string,
  networks: BuiltInNetworks,
  config: Configuration,
): Promise<void> {
  await Promise.all([
    ensureManagementInterface(fabric, instanceId, legOn(networks.management), config),
    ensurePublicInterface(fabric, instanceId, legOn(networks.public), config),
  ])
}

const legOn = ({ id, mtu, subnets }: BuiltInNetwork): Leg => ({
  networkId: id,
  mtu,
  subnets: subnets.flatMap(({ cidr, gatewayIp }) => (gatewayIp === null ? [] : [{ cidr, address: gatewayIp }])),
})

/**
 * What the host's interfaces miss, at a glance: a restart of the machine's firewall service takes all tables away, and
 * sysctl files may turn forwarding off. Without the tables, tenants would reach this machine.
 * @returns null if nothing is missing
 */
export async function missingOnHost(instanceId: string, { network }: Configuration): Promise<string | null> {
  const tables = new Set((await runTool(['nft', 'list', 'tables', 'inet'], '')).split('\n'))
  const interfaces = new Set(readdirSync('/sys/class/net'))
  for (const name of [hostLegName(instanceId, 'mgmt'), hostLegName(instanceId, 'pub')]) {
    if (!interfaces.has(name)) return `the interface ${name}`
    if (!tables.has(`table ${guardTable(name)}`)) return `the firewall table ${guardTable(name)}`
  }
  const outside = outsideTable(hostLegName(instanceId, 'pub'))
  if (!tables.has(`table ${outside}`)) return `the firewall table ${outside}`
  if (network.outside !== true) return null
  for (const family of ['ipv4', 'ipv6'] as const) if (!(await forwards(family))) return `${family} forwarding`
  return null
}

async function ensureHostLeg(
  fabric: Fabric,
  interfaceName: string,
  { networkId, mtu, subnets }: Leg,
  rules: { open: readonly OpenPort[]; isolated: boolean },
): Promise<void> {
  await fabric.ensure()
  await guardHostLeg(interfaceName, { addresses: subnets.map(({ address }) => address), ...rules })
  const addresses = subnets.map(({ cidr, address }) => `${address}/${prefixOf(cidr)}`)
  await fabric.attachHost({ networkId, mtu, interfaceName, addresses })
}

/**
 * Where the health manager listens: on the management network, and where other hosts send copies of heartbeats and
 * amphorae on other machines their own.
 * @param address this machine's on the management network
 */
export function healthManagerHosts(
  { health_manager, host }: Pick<Configuration, 'health_manager' | 'host'>,
  address: string,
): [string, ...string[]] {
  return withHostAddress(health_manager.host ?? address, host)
}

/**
 * Where the key channel listens: on the management network, and where amphorae on other machines ask.
 * @param address this machine's on the management network
 */
export function keyChannelHosts(
  { key_manager, host }: Pick<Configuration, 'key_manager' | 'host'>,
  address: string,
): [string, ...string[]] {
  return withHostAddress(key_manager.channel.host ?? address, host)
}

function withHostAddress(first: string, { address }: Configuration['host']): [string, ...string[]] {
  const isEverywhere = first === '0.0.0.0' || first === '::' || first === address
  return address === undefined || isEverywhere ? [first] : [first, address]
}

/** This machine's address on the management network; loopback if the network driver has no networks on this host. */
export async function managementAddress({ config }: Instance, driver: NetworkDriver): Promise<string> {
  if (!networkDriver(config.network.driver).onHost) return '127.0.0.1'
  return (await driver.managementNetwork()).controllerAddress
}

/**
 * Connects this machine to the amphorae's management network.
 * @returns managementAddress
 */
export async function connectToAmphorae(
  instance: Instance,
  driver: NetworkDriver,
  { fabric, instanceId }: { fabric: Fabric; instanceId: string },
): Promise<string> {
  const { config } = instance
  if (networkDriver(config.network.driver).onHost) {
    const { network, subnet, controllerAddress } = await driver.managementNetwork()
    const subnets = [{ cidr: subnet.cidr, address: controllerAddress }]
    const leg = { networkId: network.id, mtu: network.mtu, subnets }
    await ensureManagementInterface(fabric, instanceId, leg, config)
  }
  return managementAddress(instance, driver)
}
