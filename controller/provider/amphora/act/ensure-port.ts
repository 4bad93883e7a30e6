import type { LoadBalancerTree } from '../../../load-balancer/tree/tree.js'
import {
  AddressTaken,
  InvalidPortRequest,
  type NetworkDriver,
  NoAddressLeft,
  type Port,
  type PortRequest,
} from '../../../network/driver.js'
import { ProvisioningFault } from '../../provider.js'

/** @throws ProvisioningFault if the network has no such port to give */
export async function ensurePort(network: NetworkDriver, request: PortRequest): Promise<Port> {
  try {
    return await network.ensurePort(request)
  } catch (error) {
    const [fixedIp] = request.fixedIps
    if (error instanceof NoAddressLeft) {
      throw new ProvisioningFault('no-address-left', `No address is left on subnet ${fixedIp?.subnetId ?? ''}.`)
    }
    if (error instanceof AddressTaken) {
      throw new ProvisioningFault('address-taken', `The address ${fixedIp?.address ?? ''} is in use by another port.`)
    }
    if (error instanceof InvalidPortRequest) throw new ProvisioningFault('network-refused', error.message)
    throw error
  }
}

/** @returns the port with these groups @throws ProvisioningFault if it cannot have them, such as one that is gone */
export async function filterPort(network: NetworkDriver, portId: string, groupIds: readonly string[]): Promise<Port> {
  try {
    await network.setSecurityGroups(portId, groupIds)
  } catch (error) {
    if (error instanceof InvalidPortRequest) throw new ProvisioningFault('network-refused', error.message)
    throw error
  }
  const port = await network.port(portId)
  if (port === null) throw new ProvisioningFault('network-refused', `Port ${portId} could not be found.`)
  return { ...port, securityGroups: [...groupIds] }
}

/** The ID of the network of a load balancer's VIP. @throws ProvisioningFault if its subnet is gone */
export async function networkOfVip(network: NetworkDriver, { vip }: LoadBalancerTree): Promise<string> {
  const subnet = vip.subnetId === null ? undefined : (await network.subnets([vip.subnetId]))[0]
  const networkId = vip.networkId ?? subnet?.networkId
  if (networkId === undefined) throw new ProvisioningFault('subnet-missing', 'The network of the VIP no longer exists.')
  return networkId
}
