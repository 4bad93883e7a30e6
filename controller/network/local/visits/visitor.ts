import { existsSync } from 'node:fs'
import { contains, parseCidr } from '../../addresses.js'
import { type NetworkDriver, PORT_OWNER, type Subnet } from '../../driver.js'
import type { Fabric } from '../fabric.js'
import { ip, ipBatch } from '../ip-command.js'

/** A process of this host in an empty network namespace of its own, which gets a place on a project's network. */
export type Visitor = {
  /** Unique to the visit. */
  id: string
  pid: number
  projectId: string
  subnet: Subnet
}

const DEFAULT_MTU = 1500
const INTERFACE = 'eth0'
/** The longest visit: a port that is older has been left behind. */
const MAX_VISIT_SECONDS = 120

const namespaceOf = (portId: string): string => `krater-visit-${portId.slice(0, 11)}`

/**
 * Plugs a visitor into the network of a subnet, with an address of its own. The interface ends with the process.
 * @returns a function that ends the visit
 * @throws NoAddressLeft, IpCommandError
 */
export async function admitVisitor(
  fabric: Fabric,
  driver: NetworkDriver,
  { id, pid, projectId, subnet }: Visitor,
): Promise<() => Promise<void>> {
  const port = await driver.ensurePort({
    networkId: subnet.networkId,
    fixedIps: [{ subnetId: subnet.id }],
    projectId,
    name: 'visitor',
    deviceId: id,
    deviceOwner: PORT_OWNER.visitor,
  })
  const leave = () => removeVisitor(fabric, driver, port.id)
  const namespace = namespaceOf(port.id)
  try {
    const addresses = port.fixedIps.map(({ address }) => address)
    const mtu = (await driver.network(subnet.networkId))?.mtu ?? DEFAULT_MTU
    await ip(['netns', 'attach', namespace, String(pid)])
    const { networkId } = port
    const nic = { networkId, mtu, portId: port.id, macAddress: port.macAddress, addresses }
    await fabric.attach({ ...nic, namespace, interfaceName: INTERFACE })
    const fault = await ipBatch(namespace, linesFor(addresses, subnet))
    if (fault !== null) throw fault
    await ip(['netns', 'delete', namespace])
    return leave
  } catch (error) {
    await leave()
    throw error
  }
}

function linesFor(addresses: readonly string[], { cidr }: Subnet): string[] {
  const parsed = parseCidr(cidr)
  const own = addresses.filter(address => parsed !== null && contains(parsed, address))
  return [
    // No other machine can have it on a network that Krater manages.
    ...own.map(
      address => `address add ${address}/${parsed?.prefix} dev ${INTERFACE}${address.includes(':') ? ' nodad' : ''}`,
    ),
    `link set dev ${INTERFACE} up`,
  ]
}

async function removeVisitor(fabric: Fabric, driver: NetworkDriver, portId: string): Promise<void> {
  const namespace = namespaceOf(portId)
  if (existsSync(`/run/netns/${namespace}`)) await ip(['netns', 'delete', namespace]).catch(() => undefined)
  await fabric.detach(portId)
  await driver.deletePort(portId)
}

/** Removes what visitors have left behind whose host process was killed. */
export async function removeLeftVisitors(fabric: Fabric, driver: NetworkDriver): Promise<number> {
  const left = await driver.portsOwnedBy(PORT_OWNER.visitor, MAX_VISIT_SECONDS)
  for (const { id } of left) await removeVisitor(fabric, driver, id)
  return left.length
}
