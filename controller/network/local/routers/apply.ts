import { createHash } from 'node:crypto'
import { widestCidrs } from '../../addresses.js'
import { flowsOf, forgetFlows } from '../connections/conntrack.js'
import { TRACKING_SYSCTLS } from '../connections/shares.js'
import type { Fabric } from '../fabric.js'
import { ip, ipBatch, runTool } from '../ip-command.js'
import { ensureNamespace, namespaceExists, namespacesNamed, removeNamespace } from '../namespace.js'
import { nft, nftTable } from '../nft-command.js'
import { givesUp, natCommands, networksBehind, ROUTER_TABLE, staleFlows } from './plan-nat.js'
import { legsOf, observedRouter, planRouter } from './plan-router.js'
import { type Router, type RouterPort, routerNamespace, routerNamespaces } from './router.js'

/** Settings of a router's kernel. Each leg answers ARP for its own addresses only. */
const SYSCTLS = [
  'net.ipv4.ip_forward=1',
  'net.ipv6.conf.all.forwarding=1',
  'net.ipv4.conf.all.rp_filter=0',
  'net.ipv4.conf.default.rp_filter=0',
  'net.ipv4.conf.all.arp_ignore=1',
  'net.ipv4.conf.all.arp_announce=2',
  'net.ipv4.conf.default.arp_notify=1',
  'net.ipv6.conf.default.ndisc_notify=1',
  'net.ipv4.conf.all.promote_secondaries=1',
  'net.ipv4.conf.all.accept_redirects=0',
  'net.ipv4.conf.default.accept_redirects=0',
  'net.ipv6.conf.default.accept_redirects=0',
  // The kernel sends redirects if either says so.
  'net.ipv4.conf.all.send_redirects=0',
  'net.ipv4.conf.default.send_redirects=0',
  // A namespace inherits these from the host.
  'net.ipv4.conf.all.proxy_arp=0',
  'net.ipv4.conf.default.proxy_arp=0',
  'net.ipv4.conf.all.accept_source_route=0',
  'net.ipv4.conf.default.send_redirects=0',
  'net.ipv6.conf.default.accept_ra=0',
  ...TRACKING_SYSCTLS,
]

/**
 * Makes the kernel route as the router says, whatever it did before: namespace, filters, legs, addresses, routes, NAT.
 * Connections stay, but for those that the router would no longer translate as they are. May be repeated and
 * interrupted at any step.
 * @param previous what the kernel routes already; null if that is not sure
 * @throws IpCommandError if the result is not as desired
 */
export async function applyRouter(fabric: Fabric, router: Router, previous: Router | null = null): Promise<void> {
  const namespace = routerNamespace(fabric.instance, router.id)
  await ensureNamespace(namespace)
  await runTool(['nsenter', `--net=/run/netns/${namespace}`, 'sysctl', '-q', '-w', ...SYSCTLS], '')
  // Before the legs: without its rules, a router forwards nothing.
  await nft(namespace, natCommands(router))
  for (const { name, port } of legsOf(router)) await attachLeg(fabric, router, { name, port, namespace })
  const { lines, announce } = planRouter(router, await observe(namespace))
  const failure = lines.length === 0 ? null : await ipBatch(namespace, lines)
  const left = planRouter(router, await observe(namespace)).lines
  if (left.length > 0) throw failure ?? new Error(`Router ${router.id} lacks: ${left.join('; ')}`)
  if (announce.length > 0) {
    // Setting the MAC address anew makes the kernel announce all addresses of the interface.
    await ipBatch(
      namespace,
      announce.map(({ device, macAddress }) => `link set dev ${device} address ${macAddress}`),
    )
  }
  // A list of all connections is long.
  if (previous !== null && !givesUp(router, previous)) return
  for (const filter of staleFlows(router, await flowsOf(namespace))) await forgetFlows(namespace, filter)
}

function attachLeg(
  fabric: Fabric,
  router: Router,
  { name, port, namespace }: { name: string; port: RouterPort; namespace: string },
): Promise<void> {
  const own = port.addresses.map(address => address.split('/')[0] ?? address)
  const isGateway = port === router.gateway
  const { networkId, mtu, portId, macAddress } = port
  return fabric.attach({
    ...{ networkId, mtu, portId, macAddress, namespace },
    addresses: isGateway ? [...own, ...router.floatingIps.map(({ address }) => address)] : own,
    interfaceName: name,
    forwards: isGateway ? sourcesAtGateway(router) : 'anything',
  })
}

/** Whose packets leave by the gateway as they are: IPv6, and IPv4 without SNAT. */
function sourcesAtGateway({ interfaces, gateway, routes }: Router): string[] {
  const inside = widestCidrs(interfaces.flatMap(leg => networksBehind(leg, routes)))
  return inside.filter(cidr => cidr.includes(':') || gateway?.snatAddress === null)
}

async function observe(namespace: string) {
  const json = async (...args: string[]) => JSON.parse((await ip(['-n', namespace, '-json', ...args])) || '[]')
  const [addresses, four, six] = await Promise.all([
    json('address', 'show'),
    json('-4', 'route', 'show'),
    json('-6', 'route', 'show'),
  ])
  return observedRouter(addresses, { 4: four, 6: six })
}

/**
 * A digest of what a router has in the kernel: its rules, addresses and routes. Traffic does not change it. Null if its
 * namespace is gone.
 */
export async function routerState(fabric: Fabric, routerId: string): Promise<string | null> {
  const namespace = routerNamespace(fabric.instance, routerId)
  if (!namespaceExists(namespace)) return null
  const [table, observed] = await Promise.all([nftTable(namespace, ROUTER_TABLE), observe(namespace)])
  const parts = Object.values(observed).map(list => list.map(each => JSON.stringify(each)).sort())
  return createHash('sha256')
    .update(JSON.stringify([table, ...parts]))
    .digest('hex')
}

/** Removes the routers that are not among the desired ones, and their legs. @returns how many */
export async function removeOtherRouters(fabric: Fabric, desired: readonly Router[]): Promise<number> {
  const keep = new Set(desired.map(({ id }) => routerNamespace(fabric.instance, id)))
  const legs = new Set(desired.flatMap(legsOf).map(({ port }) => port.portId))
  const begun = new Set([...legs].map(portId => portId.replaceAll('-', '').slice(0, 11)))
  // Legs first: this removes both ends, even while something keeps the namespace.
  for (const portId of await fabric.attachedLegs()) {
    if (!legs.has(portId) && !begun.has(portId)) await fabric.detachLeg(portId)
  }
  const others = namespacesNamed(routerNamespaces(fabric.instance)).filter(name => !keep.has(name))
  for (const name of others) await removeNamespace(name)
  return others.length
}
