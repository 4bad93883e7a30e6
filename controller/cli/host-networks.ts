import type { NetworkDriver } from '../network/driver.js'
import type { Fabric } from '../network/local/fabric.js'
import type { Instance } from './instance.js'

const prefixOf = (cidr: string): string => cidr.split('/')[1] ?? '32'

/** Names of the host's own cards: at most 15 characters, and told apart from other instances'. */
export const hostLegName = (instanceId: string, network: 'mgmt' | 'pub'): string => `kr${instanceId}-${network}`

/** The host's card on one network, with one address of it. Needed again after every boot of the machine; safe to repeat. */
export async function ensureHostLeg(
  fabric: Fabric,
  interfaceName: string,
  { networkId, mtu, cidr, address }: { networkId: string; mtu: number; cidr: string; address: string },
): Promise<void> {
  await fabric.ensure()
  await fabric.attachHost({ networkId, mtu, interfaceName, addresses: [`${address}/${prefixOf(cidr)}`] })
}

/**
 * Where this machine's controllers meet the amphorae, made ready. With the noop drivers nobody comes, and it is loopback.
 * @returns the controllers' address, to which heartbeats go
 */
export async function ensureManagementLeg(
  { config }: Instance,
  driver: NetworkDriver,
  { fabric, instanceId }: { fabric: Fabric; instanceId: string },
): Promise<string> {
  if (config.network.driver === 'noop') return config.health_manager.host ?? '127.0.0.1'
  const { network, subnet, controllerAddress } = await driver.managementNetwork()
  await ensureHostLeg(fabric, hostLegName(instanceId, 'mgmt'), {
    networkId: network.id,
    mtu: network.mtu,
    cidr: subnet.cidr,
    address: controllerAddress,
  })
  return config.health_manager.host ?? controllerAddress
}
