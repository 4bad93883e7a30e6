import { vipDeviceId, vipPortName } from '../load-balancer/objects/load-balancers/vip-port-name.js'
import type { LoadBalancerTree } from '../load-balancer/tree/tree.js'
import { type NetworkDriver, PORT_OWNER, type Port, type PortRequest } from '../network/driver.js'

/** The request for the port of a VIP. Repeating it finds the same port. */
export function vipPortRequest(tree: LoadBalancerTree, networkId: string): PortRequest {
  const { vip, id, projectId, additionalVips } = tree
  return {
    networkId,
    fixedIps: [...(vip.subnetId === null ? [] : [{ subnetId: vip.subnetId, address: vip.address }]), ...additionalVips],
    projectId,
    name: vipPortName(id),
    deviceId: vipDeviceId(id),
    deviceOwner: PORT_OWNER.vip,
  }
}

/** Deletes a VIP port that the service created; unbinds one that the user supplied. Safe to repeat. */
export async function releaseVipPort(network: NetworkDriver, tree: LoadBalancerTree): Promise<void> {
  const { portId, ownsPort } = tree.vip
  if (ownsPort) {
    const owned = await network.portsOf(vipDeviceId(tree.id))
    const ids = new Set([...owned.map(port => port.id), ...(portId === null ? [] : [portId])])
    for (const id of ids) await network.deletePort(id)
    return
  }
  if (portId === null) return
  const port = await network.port(portId)
  if (port !== null && belongsTo(port, tree.id)) await network.bindPort(portId, null)
}

/** False if the user has since attached the port to something else; then leave it alone. */
const belongsTo = (port: Port, loadBalancerId: string) =>
  port.deviceOwner === PORT_OWNER.vip && port.deviceId === vipDeviceId(loadBalancerId)
