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
